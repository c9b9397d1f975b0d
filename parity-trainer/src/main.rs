//! `parity-trainer`: trains deployed models and parity models into a model repository.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments or files given cannot be used, 130 interrupted.

mod command;
mod progress;
mod report;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use parapet_cluster::roles::command as cluster;
use parapet_config::log::{self, LevelFilter, LogFormat};
use parity_trainer::{TrainError, device};
use tch::Device;

use command::interrupt::EXIT_CODE;
use command::{eval, reproduce, train_deployed, train_parity, worker};

/// Trains deployed models and parity models into a model repository.
#[derive(Debug, Parser)]
#[command(version, after_help = include_str!("help.txt"))]
struct Cli {
    /// Threads of libtorch and ONNX Runtime [default: all processors]
    #[arg(long, global = true)]
    threads: Option<u16>,
    /// Where networks are trained: cpu, cuda or cuda:N
    #[arg(long, global = true, value_parser = device::parse, default_value = "cpu")]
    device: Device,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model on labelled data, to be deployed
    TrainDeployed(Box<train_deployed::Args>),
    /// Train a parity model for a deployed model
    Train(Box<train_parity::Args>),
    /// Evaluate parity models on the test set
    Eval(eval::Args),
    /// Compute for whatever training a cluster has
    Worker(worker::Args),
    #[command(flatten)]
    Cluster(cluster::Command),
    /// Make the accuracy table again: train, evaluate and tell every row of it
    Reproduce(reproduce::Args),
}

/// Environment variable that decides how OpenMP's threads, libtorch's, wait for each other.
const WAIT_POLICY: &str = "OMP_WAIT_POLICY";
/// Spins of GNU's OpenMP before a waiting thread sleeps.
const SPIN_COUNT: (&str, &str) = ("GOMP_SPINCOUNT", "10000");

/// Starts the program again with threads that soon sleep while waiting, unless the user chose.
///
/// By default they spin for milliseconds. On a machine that is busy with anything else the spinning
/// keeps the awaited thread from its core: measured on 2 cores under load, 54 s against 6 s. Not to
/// spin at all costs 40 % on an idle machine, a short spin nothing. OpenMP reads the variables when
/// it is loaded, before `main`.
fn limit_spinning() {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if is_set(WAIT_POLICY) || is_set(SPIN_COUNT.0) {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let error = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .env(WAIT_POLICY, "passive")
            .env(SPIN_COUNT.0, SPIN_COUNT.1)
            .exec();
        eprintln!(
            "warning: cannot set {WAIT_POLICY}: {error}; training may be slow on a busy machine"
        );
    }
}

/// Programs that `cluster up` starts: servers without libtorch if that program is beside this one.
fn programs(threads: usize) -> cluster::Programs {
    let worker = std::env::current_exe().ok();
    let beside = |own: &std::path::PathBuf| own.with_file_name("parapet-parameter-server");
    let server = worker.as_ref().map(beside);
    cluster::Programs {
        server: server.filter(|program| program.is_file()),
        worker,
        threads: u16::try_from(threads).ok(),
    }
}

fn run(cli: Cli, matches: &ArgMatches) -> Result<(), TrainError> {
    // libtorch counts physical cores and would leave half of a small cloud machine idle.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let threads = cli.threads.map_or(processors, |threads| threads.max(1).into());
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    device::choose(cli.device)?;
    cli.command.run(matches, threads)
}

impl Command {
    /// Runs the command of a whole command line's `matches`.
    fn run(self, matches: &ArgMatches, threads: usize) -> Result<(), TrainError> {
        let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
        match self {
            Self::TrainDeployed(args) => train_deployed::run(&args, matches),
            Self::Train(args) => train_parity::run(&args, matches, threads),
            Self::Eval(args) => eval::run(&args, threads),
            Self::Worker(args) => worker::run(&args, threads),
            Self::Cluster(command) => command.run(&programs(threads)).map_err(TrainError::Cluster),
            Self::Reproduce(args) => reproduce::run(&args, threads),
        }
    }
}

fn main() -> ExitCode {
    limit_spinning();
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log::start(LogFormat::Text, LevelFilter::WARN);
    let Err(error) = run(cli, &matches) else { return ExitCode::SUCCESS };
    eprintln!("error: {}", error.first_line());
    ExitCode::from(match error {
        TrainError::Interrupted(_) => EXIT_CODE,
        error if error.is_input() => 2,
        _ => 1,
    })
}
