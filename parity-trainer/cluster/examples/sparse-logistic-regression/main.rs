//! Sparse logistic regression by FTRL-proximal (McMahan et al., "Ad Click Prediction", KDD 2013)
//! on generated rows with few of millions of features each (Li et al., OSDI 2014, section 5.1); the
//! KKT filter keeps back gradients that would leave a weight at 0. Servers and workers run in this
//! process, as the nodes that they are in a cluster.

#[path = "../../tests/node/harness.rs"]
mod harness;
#[path = "../../tests/support/in_process.rs"]
mod in_process;

mod data;
mod ftrl;
mod staleness;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Result;
use clap::Parser;
use parapet_cluster::node::Transport::Tcp;
use parapet_parameter_server::{Consistency, Ftrl, Kkt, LeftOut};
use tokio::runtime::Runtime;

use data::{Generated, Score};
use ftrl::Training;

/// Sparse logistic regression by FTRL-proximal on a parameter server in this process.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Gradients that leave a weight at 0: `off` sends them, `kept:SHARE` keeps them back until
    /// their sum is above this share of the L1 penalty, `dropped:SHARE` forgets them
    #[arg(long, default_value = "kept:0.8", value_parser = kkt)]
    kkt: KktOption,
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

const DATA: Generated =
    Generated { features: 10_000_000, rows: 1_000_000, held_out: 50_000, draws: 50, seed: 1 };

const TRAINING: Training = Training {
    workers: 2,
    servers: 2,
    replicas: 1,
    consistency: Consistency::Bsp,
    batch: 1_000,
    passes: 1,
    ftrl: Ftrl { alpha: 0.1, beta: 1.0, l1: 3.0, l2: 0.0 },
    kkt: None,
    seed: 1,
};

fn main() -> Result<()> {
    let (cli, runtime) = (Cli::parse(), Runtime::new()?);
    if let Some(Subcommand::Staleness(experiment)) = cli.command {
        let measured = runtime.block_on(experiment.race())?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    eprintln!("generating rows of {} features ..", DATA.features);
    let data = Arc::new(DATA.generate()?);
    println!("at best    {}", Score::new(&data.held_out, &data.truth));
    let kkt = cli.kkt.map(|(share, left_out)| Kkt {
        threshold: share * TRAINING.ftrl.l1,
        scale: TRAINING.workers as f32,
        left_out,
    });
    let training = Training { kkt, ..TRAINING };
    println!("{}", runtime.block_on(training.run(data, Tcp))?);
    Ok(())
}
