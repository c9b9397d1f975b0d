//! Kills servers of a real cluster again and again, and tells how soon pushes go on: `cargo xtask chaos-parameter-server`.

#![allow(unreachable_pub, reason = "an example; its test shares the module")]

mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Kill -9 the server that holds the head of a range while a worker pushes; start another; again.
#[derive(Debug, Parser)]
struct Cli {
    /// The program that has the commands `server` and `coordinator`
    #[arg(long)]
    program: PathBuf,
    /// How many servers are killed, one after the other
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Use this registry in etcd, and no coordinator
    #[arg(long, value_name = "ADDRESS")]
    registry: Option<String>,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most that the slowest push may take, in milliseconds
    #[arg(long, default_value_t = 1000)]
    limit: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let plan = run::Plan {
        program: cli.program,
        kills: cli.kills,
        registry: cli.registry,
        seed: cli.seed,
        tell: true,
    };
    match run::run(&plan).await {
        Ok(outcome) => {
            println!("{}", outcome.table());
            if outcome.percentile(0.99).as_millis() > u128::from(cli.limit) {
                eprintln!("error: the 99th percentile is above {} ms", cli.limit);
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
