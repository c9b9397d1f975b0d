//! Kills servers of a real cluster again and again while workers push and learn, and judges what
//! became of it: `cargo xtask chaos parameter-server`.

#![allow(unreachable_pub, reason = "an example; its test shares the module")]

mod run;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use parapet_config::log::{self, LevelFilter, LogFormat};
use run::{ChaosOutcome, Plan, RegistryChoice};

/// Kill -9 the server that holds the head of a range while workers push; start another; again.
#[derive(Debug, Parser)]
struct Cli {
    /// The program that has the commands `server` and `coordinator`
    #[arg(long)]
    program: PathBuf,
    /// Number of servers to kill, one after the other
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Place of the registry, which is started for this run
    #[arg(long, default_value = "coordinator")]
    registry: RegistryChoice,
    /// After half of the kills, stop the registry's process for this long (SIGSTOP)
    #[arg(long, value_name = "SECONDS")]
    stop_registry: Option<u64>,
    /// Seed of the moments and of the training
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Undisturbed trainings to compare the disturbed one with: none, or 2 to 10
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=10))]
    undisturbed: u64,
    /// Say of one of three servers that it is slow, of another one each second, so that ranges move
    #[arg(long)]
    moves: bool,
    /// The most that a push may take at the 99th percentile of the kills, and while the registry
    /// stands still, in milliseconds
    #[arg(long, default_value_t = 1000)]
    limit: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    log::start(LogFormat::Text, LevelFilter::ERROR);
    let cli = Cli::parse();
    let plan = Plan {
        program: cli.program,
        kills: cli.kills,
        registry: cli.registry,
        stop_registry: cli.stop_registry.map(Duration::from_secs),
        seed: cli.seed,
        undisturbed: cli.undisturbed,
        moves: cli.moves,
    };
    let mut outcome = ChaosOutcome::default();
    let ended = run::run(&plan, &mut outcome).await;
    let mut missed = outcome.missed(Duration::from_millis(cli.limit));
    missed.extend(ended.err().map(|error| format!("{error:#}")));
    println!("{outcome}");
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", missed.join("; "));
    ExitCode::FAILURE
}
