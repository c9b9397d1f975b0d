//! `parity-trainer`: trains deployed models and parity models into a model repository.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments or files given cannot be used.

mod command;
mod progress;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use command::{train_deployed, train_parity};

/// Trains deployed models and parity models into a model repository.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Threads of libtorch [default: all processors]
    #[arg(long, global = true)]
    threads: Option<u16>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model on labelled data, to be deployed
    TrainDeployed(train_deployed::Args),
    /// Train a parity model for a deployed model
    Train(train_parity::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // libtorch counts physical cores and would leave half of a small cloud machine idle.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get().min(16));
    tch::set_num_threads(cli.threads.map_or(processors as i32, |threads| i32::from(threads.max(1))));
    let outcome = match cli.command {
        Command::TrainDeployed(args) => train_deployed::run(&args),
        Command::Train(args) => train_parity::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Messages of libtorch go on with a stack trace; the first line says it all.
            let message = error.to_string();
            eprintln!("error: {}", message.lines().next().unwrap_or_default());
            ExitCode::from(if error.is_input() { 2 } else { 1 })
        }
    }
}
