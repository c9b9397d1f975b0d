//! A second application of the parameter server, beside training networks: sparse logistic
//! regression by FTRL-proximal (McMahan et al., "Ad Click Prediction", KDD 2013) on data with
//! millions of features, of which a row has a few (Li et al., OSDI 2014, section 5.1).
//!
//! Servers and workers run in this process, as the nodes that they are in a cluster: a worker pulls
//! the weights of its minibatch's features and no others, pushes the sums of their gradients, and
//! the servers' update rule is FTRL. The KKT filter keeps back gradients that would leave a weight
//! at 0.
//!
//! - [`data`]: rows from files, hashed text, or a seeded generator.
//! - [`Minibatch`] and [`logistic`]: the arithmetic of one worker.
//! - [`Cluster`], [`train`]: servers, workers and what they measure.
//! - [`Score`]: log loss, AUC and accuracy.
//! - [`staleness`]: what workers gain that may miss some of one another.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments cannot be used, 130 ended by a second Ctrl-C.

#![allow(missing_docs, reason = "an example's insides")]

#[path = "../../tests/support/in_process.rs"]
mod in_process;

mod cluster;
mod data;
mod logistic;
mod minibatch;
mod options;
mod report;
mod rows;
mod score;
mod staleness;
#[cfg(test)]
mod tests;
mod training;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use parapet_cluster::node::transport::{Memory, Tcp};
use parapet_parameter_server::{Consistency, Ftrl};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use cluster::{ARRAY, Cluster, ClusterSettings, Place};
use data::{DataError, DataSet, Format, Generated};
use minibatch::{Batches, Minibatch};
use options::KktOption;
use rows::{Row, Rows};
use score::Score;
use training::{TrainError, TrainSettings, TrainingOutcome, train};

/// Sparse logistic regression by FTRL-proximal on a parameter server: servers and workers
/// in this process.
#[derive(Debug, Parser)]
#[command(
    name = "sparse-logistic-regression",
    version,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// A folder of IDX files (train-images-idx.., train-labels-idx.., t10k-..) with labels 0 and 1;
    /// generated rows without it
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Read the folder's train-text.tsv and t10k-text.tsv instead, with their words hashed into so
    /// many features
    #[arg(long, value_name = "FEATURES", requires = "data", value_parser = clap::value_parser!(u32).range(1..u32::MAX as i64))]
    hashed: Option<u32>,
    /// Features of generated rows
    #[arg(long, default_value_t = 10_000_000, conflicts_with = "data", value_parser = clap::value_parser!(u32).range(1..u32::MAX as i64))]
    features: u32,
    /// Generated rows to learn from
    #[arg(long, default_value_t = 1_000_000, conflicts_with = "data", value_parser = at_least_1)]
    rows: usize,
    /// Generated rows to judge by
    #[arg(long, default_value_t = 50_000, conflicts_with = "data", value_parser = at_least_1)]
    held_out: usize,
    /// Features drawn for each generated row
    #[arg(long, default_value_t = 50, conflicts_with = "data", value_parser = at_least_1)]
    draws: usize,
    /// Workers
    #[arg(long, default_value_t = 2, value_parser = at_least_1)]
    workers: usize,
    /// Servers
    #[arg(long, default_value_t = 2, value_parser = at_least_1)]
    servers: usize,
    /// Servers that hold each range
    #[arg(long, default_value_t = 1, value_parser = at_least_1)]
    replication: usize,
    /// Consistency model: bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or eventual
    #[arg(long, default_value = "bsp")]
    consistency: Consistency,
    /// Transport of messages
    #[arg(long, value_enum, default_value_t = Via::Tcp)]
    transport: Via,
    /// Rows of a minibatch
    #[arg(long, default_value_t = 1000, value_parser = at_least_1)]
    batch: usize,
    /// Number of passes over all rows
    #[arg(long, default_value_t = 1, value_parser = at_least_1)]
    passes: usize,
    /// FTRL: the scale of the learning rate
    #[arg(long, default_value_t = 0.1, value_parser = positive)]
    alpha: f32,
    /// FTRL: smooths the first steps
    #[arg(long, default_value_t = 1.0, value_parser = not_negative)]
    beta: f32,
    /// FTRL: the weight of the L1 penalty
    #[arg(long, default_value_t = 3.0, value_parser = not_negative)]
    l1: f32,
    /// FTRL: the weight of the L2 penalty
    #[arg(long, default_value_t = 0.0, value_parser = not_negative)]
    l2: f32,
    /// Gradients that leave a weight at 0: `off` sends them, `kept:SHARE` keeps them back until
    /// their sum is above this share of the L1 penalty, `dropped:SHARE` forgets them
    #[arg(long, default_value = "kept:0.8")]
    kkt: KktOption,
    /// Send every list of keys in full, not its digest where the other end has it
    #[arg(long)]
    no_key_lists: bool,
    /// Seed of the generated rows and of the order of rows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the outcome here as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Measure what staleness gains while a worker is slow, and print it as JSON
    Staleness(staleness::Args),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Via {
    Tcp,
    /// From task to task.
    Memory,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Race(#[from] staleness::RaceError),
    #[error(
        "{servers} servers cannot hold {replication} copies of each range: give more --servers, or \
         a lower --replication"
    )]
    Replication { servers: usize, replication: usize },
    #[error("threads and signals cannot be set up ({0}): raise the process's limits")]
    Runtime(std::io::Error),
    #[error("{}: cannot be written ({source}): give another --json", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Error {
    const fn exit_code(&self) -> u8 {
        if matches!(self, Self::Replication { .. }) {
            2
        } else {
            1
        }
    }
}

fn at_least_1(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .map_err(|_| format!("'{text}' is no whole number"))?;
    if number > 0 {
        Ok(number)
    } else {
        Err("must be at least 1".into())
    }
}

fn not_negative(text: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if number >= 0.0 && number.is_finite() {
        Ok(number)
    } else {
        Err("must be 0 or above, and finite".into())
    }
}

fn positive(text: &str) -> Result<f32, String> {
    not_negative(text).and_then(|number| {
        if number > 0.0 {
            Ok(number)
        } else {
            Err("must be above 0".into())
        }
    })
}

impl Cli {
    fn settings(&self) -> TrainSettings {
        TrainSettings {
            workers: self.workers,
            servers: self.servers,
            replicas: self.replication,
            consistency: self.consistency,
            batch: self.batch,
            passes: self.passes,
            ftrl: Ftrl {
                alpha: self.alpha,
                beta: self.beta,
                l1: self.l1,
                l2: self.l2,
            },
            kkt: self.kkt.filter(self.l1, self.workers),
            key_lists: !self.no_key_lists,
            seed: self.seed,
        }
    }

    fn load(&self) -> Result<DataSet, DataError> {
        match &self.data {
            Some(folder) => data::load(
                folder,
                self.hashed
                    .map_or(Format::Idx, |features| Format::Text { features }),
            ),
            None => Ok(data::generate(&Generated {
                features: self.features,
                rows: self.rows,
                held_out: self.held_out,
                draws: self.draws,
                seed: self.seed,
            })),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.run() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

impl Cli {
    /// Runs the command and returns what it prints.
    fn run(&self) -> Result<String, Error> {
        match &self.command {
            Some(Subcommand::Staleness(args)) => {
                let runtime = Runtime::new().map_err(Error::Runtime)?;
                let measured = runtime.block_on(staleness::race(args.experiment()))?;
                Ok(json!(measured).to_string())
            }
            None => self.train(),
        }
    }

    fn train(&self) -> Result<String, Error> {
        if self.replication > self.servers {
            return Err(Error::Replication {
                servers: self.servers,
                replication: self.replication,
            });
        }
        if self.data.is_none() {
            let rows = self.rows + self.held_out;
            eprintln!("generating {rows} rows of {} features ..", self.features);
        }
        let data = Arc::new(self.load()?);
        let runtime = Runtime::new().map_err(Error::Runtime)?;
        let outcome = runtime.block_on(learn(self, Arc::clone(&data)))?;
        if let Some(path) = &self.json {
            let text = report::json(&data, &self.settings(), &outcome);
            std::fs::write(path, text).map_err(|source| Error::Write {
                path: path.clone(),
                source,
            })?;
        }
        let (about, outcome) = (report::data(&data), report::outcome(&data, &outcome));
        Ok(format!("{about}\n{outcome}"))
    }
}

/// Trains until it is done or Ctrl-C ends it, with a bar of what is learned.
async fn learn(cli: &Cli, data: Arc<DataSet>) -> Result<TrainingOutcome, TrainError> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            eprintln!("ending; once more ends at once");
            stop.send_replace(true);
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
    let bar = ProgressBar::new((data.train.len() * cli.passes) as u64);
    // A template that does not parse would be this program's mistake; the bar then looks plainer.
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} rows, {per_sec}, {msg}, {eta} left")
    {
        bar.set_style(style);
    }
    // The mean loss of the last rows, some ten minibatches.
    let mean = Arc::new(Mutex::new(None::<f64>));
    let learned = {
        let bar = bar.clone();
        move |rows: usize, loss: f64| {
            let loss = loss / rows.max(1) as f64;
            let mut mean = mean.lock();
            let smoothed = mean.map_or(loss, |mean| mean + 0.1 * (loss - mean));
            *mean = Some(smoothed);
            bar.inc(rows as u64);
            bar.set_message(format!("loss {smoothed:.4}"));
        }
    };
    let outcome = match cli.transport {
        Via::Tcp => train(data, cli.settings(), Tcp, stopped, learned).await,
        Via::Memory => train(data, cli.settings(), Memory::default(), stopped, learned).await,
    };
    bar.finish_and_clear();
    outcome
}
