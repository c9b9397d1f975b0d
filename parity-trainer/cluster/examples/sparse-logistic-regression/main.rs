//! Sparse logistic regression by FTRL-proximal (McMahan et al., "Ad Click Prediction", KDD 2013)
//! on generated rows with few of millions of features each (Li et al., OSDI 2014, section 5.1).
//!
//! Servers and workers run in this process, as the nodes that they are in a cluster: a worker pulls
//! the weights of its minibatch's features and no others, pushes the sums of their gradients, and
//! the servers' update rule is FTRL. The KKT filter keeps back gradients that would leave a weight
//! at 0.

#[path = "../../tests/node/harness.rs"]
mod harness;
#[path = "../../tests/support/in_process.rs"]
mod in_process;

mod data;
mod model;
mod staleness;
#[cfg(test)]
mod tests;
mod training;

use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::Parser;
use indicatif::ProgressBar;
use parapet_cluster::node::transport::Tcp;
use parapet_parameter_server::{Consistency, Ftrl, Kkt, LeftOut};
use tokio::runtime::Runtime;

use data::Generated;
use model::Score;
use training::{Training, TrainingOutcome};

/// Sparse logistic regression by FTRL-proximal on a parameter server in this process.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Features of the generated rows
    #[arg(long, default_value = "10000000")]
    features: NonZeroU32,
    /// Rows to learn from
    #[arg(long, default_value = "1000000")]
    rows: NonZeroUsize,
    #[arg(long, default_value = "2")]
    workers: NonZeroUsize,
    #[arg(long, default_value = "2")]
    servers: NonZeroUsize,
    /// Servers that hold each range
    #[arg(long, default_value = "1")]
    replication: NonZeroUsize,
    /// bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or eventual
    #[arg(long, default_value = "bsp")]
    consistency: Consistency,
    /// Rows of a minibatch
    #[arg(long, default_value = "1000")]
    batch: NonZeroUsize,
    /// FTRL: the scale of the learning rate
    #[arg(long, default_value_t = 0.1, value_parser = positive)]
    alpha: f32,
    /// FTRL: the weight of the L1 penalty
    #[arg(long, default_value_t = 3.0, value_parser = positive)]
    l1: f32,
    /// Gradients that leave a weight at 0: `off` sends them, `kept:SHARE` keeps them back until
    /// their sum is above this share of the L1 penalty, `dropped:SHARE` forgets them
    #[arg(long, default_value = "kept:0.8", value_parser = kkt)]
    kkt: KktOption,
    /// Seed of the rows and of their order
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Measure what staleness gains while a worker is slow, and print it as JSON
    Staleness(staleness::Experiment),
}

/// Share of the L1 penalty up to which gradients are left out.
type KktOption = Option<(f32, LeftOut)>;

fn kkt(text: &str) -> Result<KktOption, String> {
    if text == "off" {
        return Ok(None);
    }
    let (left_out, share) = match text.split_once(':') {
        Some(("kept", share)) => (LeftOut::KeptBack, share),
        Some(("dropped", share)) => (LeftOut::Dropped, share),
        _ => (LeftOut::KeptBack, ""),
    };
    match share.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(Some((share, left_out))),
        _ => Err("write off, kept:0.5 or dropped:0.5, a share up to 1".into()),
    }
}

fn positive(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f32::is_finite(number) => Ok(number),
        _ => Err("write a finite number above 0".into()),
    }
}

impl Cli {
    fn training(&self) -> Training {
        Training {
            workers: self.workers.get(),
            servers: self.servers.get() as u64,
            replicas: self.replication.get() as u64,
            consistency: self.consistency,
            batch: self.batch.get(),
            passes: 1,
            ftrl: Ftrl {
                alpha: self.alpha,
                beta: 1.0,
                l1: self.l1,
                l2: 0.0,
            },
            kkt: self.kkt.map(|(share, left_out)| Kkt {
                threshold: share * self.l1,
                scale: self.workers.get() as f32,
                left_out,
            }),
            seed: self.seed,
        }
    }

    /// Runs the command and returns what it prints.
    fn run(&self) -> Result<String> {
        let runtime = Runtime::new()?;
        if let Some(Subcommand::Staleness(args)) = &self.command {
            let measured = runtime.block_on(staleness::race(*args))?;
            return Ok(serde_json::to_string(&measured)?);
        }
        ensure!(
            self.replication <= self.servers,
            "{} servers cannot hold {} copies of each range: give more --servers, or a lower \
                --replication",
            self.servers,
            self.replication
        );
        eprintln!("generating rows of {} features ..", self.features);
        let generated = Generated {
            features: self.features.get(),
            rows: self.rows.get(),
            held_out: 50_000,
            draws: 50,
            seed: self.seed,
        };
        let data = Arc::new(data::generate(&generated)?);
        let best = Score::new(&data.truth, data.held_out.labels());
        let bar = ProgressBar::new(data.train.len() as u64);
        let outcome = runtime.block_on(self.training().run(data, Tcp, bar))?;
        Ok(report(&outcome, &best))
    }
}

fn report(outcome: &TrainingOutcome, best: &Score) -> String {
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let payload = &outcome.payload;
    let kept = payload.rows_sent as f64 / payload.rows.max(1) as f64;
    format!(
        "held out   {}\nat best    {best}\n\
        learning   log loss {:.4} of each row before it was learned from\n\
        weights    {} are not 0\n\
        time       {:.1} s, workers idle {:.1} % of it\n\
        keys and values: {} asked, {} answered, {} pushed; KKT left out {:.1} % of the gradients",
        outcome.score,
        outcome.progressive_loss,
        outcome.model.len(),
        outcome.seconds,
        100.0 * outcome.idle,
        megabytes(payload.asked),
        megabytes(payload.answered),
        megabytes(payload.pushed),
        100.0 * (1.0 - kept),
    )
}

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(text) => println!("{text}"),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
