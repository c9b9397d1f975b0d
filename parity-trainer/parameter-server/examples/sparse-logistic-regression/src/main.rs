//! Sparse logistic regression on a parameter server within this process.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments cannot be used, 130 ended by a second Ctrl-C.

mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use parapet_cluster::node::transport::{Memory, Tcp};
use parapet_parameter_server::{Consistency, Ftrl};
use parapet_sparse_logistic_regression::data::{self, DataError, DataSet, Format, Generated};
use parapet_sparse_logistic_regression::{KktOption, Outcome, TrainError, TrainSettings, train};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Sparse logistic regression by FTRL-proximal on a parameter server: servers and workers in this
/// process.
#[derive(Debug, Parser)]
#[command(name = "sparse-logistic-regression", version)]
struct Cli {
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
    /// What workers may miss of one another: bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or
    /// eventual
    #[arg(long, default_value = "bsp")]
    consistency: Consistency,
    /// How messages go
    #[arg(long, value_enum, default_value_t = Via::Tcp)]
    transport: Via,
    /// Rows of a minibatch
    #[arg(long, default_value_t = 1000, value_parser = at_least_1)]
    batch: usize,
    /// How often all rows are learned from
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

/// How messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Via {
    /// Over loopback.
    Tcp,
    /// From task to task.
    Memory,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error("threads and signals cannot be set up ({0}): raise the process's limits")]
    Runtime(std::io::Error),
    #[error("{}: cannot be written ({source}): give another --json", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
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
    if cli.replication > cli.servers {
        eprintln!(
            "error: {} servers cannot hold {} copies of each range: give more --servers, or a lower --replication",
            cli.servers, cli.replication
        );
        return ExitCode::from(2);
    }
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Error> {
    if cli.data.is_none() {
        eprintln!(
            "generating {} rows of {} features ..",
            cli.rows + cli.held_out,
            cli.features
        );
    }
    let data = Arc::new(cli.load()?);
    println!("{}", report::data(&data));
    let runtime = Runtime::new().map_err(Error::Runtime)?;
    let outcome = runtime.block_on(learn(cli, Arc::clone(&data)))?;
    println!("{}", report::outcome(&data, &outcome));
    if let Some(path) = &cli.json {
        let text = report::json(&data, &cli.settings(), &outcome);
        std::fs::write(path, text).map_err(|source| Error::Write {
            path: path.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Trains until it is done or Ctrl-C ends it, with a bar of what is learned.
async fn learn(cli: &Cli, data: Arc<DataSet>) -> Result<Outcome, TrainError> {
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
