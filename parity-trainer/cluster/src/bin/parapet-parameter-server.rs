//! `parapet-parameter-server`: servers and coordinators of a cluster, without libtorch.
//!
//! Exit codes: 0 done, 1 failed, 2 the arguments cannot be used, 130 ended by a second signal.

use std::process::ExitCode;

use clap::Parser;
use parapet_cluster::roles::command::{Command, Programs};
use parapet_config::log::{self, LevelFilter, LogFormat};

/// Servers and coordinators of a parameter-server cluster.
#[derive(Debug, Parser)]
#[command(version, after_help = include_str!("help.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    log::start(LogFormat::Text, LevelFilter::WARN);
    match Cli::parse().command.run(&Programs::default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
