//! `parity-trainer`: trains deployed models and parity models into a model repository.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments or files given cannot be used, 130 interrupted.

mod command;
mod progress;
mod report;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use parity_trainer::device::DeviceName;
use parity_trainer::{SetupError, TrainError};

use command::{INTERRUPTED, eval, reproduce, train_deployed, train_parity, worker};
use parapet_cluster::roles::command as cluster;

/// Trains deployed models and parity models into a model repository.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Threads of libtorch and ONNX Runtime [default: all processors]
    #[arg(long, global = true)]
    threads: Option<u16>,
    /// Where networks are trained: cpu, cuda or cuda:N
    #[arg(long, global = true, default_value_t = DeviceName::Cpu)]
    device: DeviceName,
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

/// Environment variable that decides how OpenMP's threads, which libtorch computes with, wait
/// for each other.
const WAIT_POLICY: &str = "OMP_WAIT_POLICY";
/// Spins of GNU's OpenMP before a waiting thread sleeps.
const SPIN_COUNT: (&str, &str) = ("GOMP_SPINCOUNT", "10000");

/// Starts the program again with threads that soon sleep while they wait, unless the
/// user has chosen.
///
/// By default they spin for milliseconds. On a machine that is busy with anything else the spinning
/// keeps the awaited thread from its core: measured on 2 cores under load, 54 s against 6 s. Not to
/// spin at all costs 40 % on an idle machine, a short spin nothing. OpenMP reads the variables when
/// it is loaded, before `main`.
fn start_with_patient_threads() {
    if [WAIT_POLICY, SPIN_COUNT.0]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some())
    {
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

/// Returns the programs that `cluster up` starts: servers without libtorch where that program is
/// beside this one.
fn programs(threads: Option<u16>) -> cluster::Programs {
    let own = std::env::current_exe().ok();
    let beside = own
        .as_ref()
        .map(|own| own.with_file_name("parapet-parameter-server"));
    cluster::Programs {
        server: beside.filter(|program| program.is_file()),
        worker: own,
        threads,
    }
}

fn main() -> ExitCode {
    start_with_patient_threads();
    let cli = Cli::parse();
    reproduce::end_with_parent();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    // libtorch counts physical cores and would leave half of a small cloud machine idle.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let threads = cli
        .threads
        .map_or(processors, |threads| usize::from(threads.max(1)));
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    let outcome = cli
        .device
        .choose()
        .map_err(TrainError::from)
        .and_then(|()| match cli.command {
            Command::TrainDeployed(args) => train_deployed::run(&args),
            Command::Train(args) => train_parity::run(&args, threads),
            Command::Eval(args) => eval::run(&args, threads),
            Command::Worker(args) => worker::run(&args, threads),
            Command::Cluster(command) => command
                .run(&programs(cli.threads))
                .map_err(TrainError::Cluster),
            Command::Reproduce(args) => reproduce::run(&args, threads),
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Messages of libtorch go on with a stack trace; the first line says it all.
            let message = error.to_string();
            eprintln!("error: {}", message.lines().next().unwrap_or_default());
            let interrupted = matches!(&error, TrainError::Setup(SetupError::Interrupted { .. }));
            ExitCode::from(if interrupted {
                INTERRUPTED
            } else if error.is_input() {
                2
            } else {
                1
            })
        }
    }
}
