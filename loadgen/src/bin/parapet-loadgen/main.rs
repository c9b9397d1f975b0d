//! `parapet-loadgen`: measures a prediction server under an open-loop load.
//!
//! Exit codes: 0 done, 1 failed or an objective missed, 2 the arguments or files given cannot be used or the target does not
//! answer, 130 ended by Ctrl-C with a partial report.

mod compare;
mod diff;
mod display;
mod payload;
mod run;
mod simulate;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures a prediction server under an open-loop load.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send requests at planned times and report latency, errors and accuracy
    Run(Box<run::Args>),
    /// Run redundancy strategies side by side on one schedule, and report what each buys and costs
    Compare(Box<compare::Args>),
    /// Simulate a cluster under several strategies in virtual time
    Simulate(Box<simulate::Args>),
    /// Simulate many points of rate, k, r and stragglers, and tell where each strategy wins
    Sweep(Box<sweep::Args>),
    /// Show what changed from one report to another
    Diff(diff::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Diff(args) => diff::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(run::Error { code, cause }) => {
            eprintln!("parapet-loadgen: {}", one_line(&cause));
            ExitCode::from(code)
        }
    }
}

/// An error and its causes, but for those that it tells itself.
fn one_line(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}
