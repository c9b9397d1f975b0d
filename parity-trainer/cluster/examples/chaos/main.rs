//! Kills servers of a real cluster again and again while workers push and learn, and judges what
//! became of it: `cargo xtask chaos parameter-server`.

#![allow(unreachable_pub, reason = "an example; its test shares the module")]

mod run;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
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
    /// Registry: `coordinator` serves one; `etcd` starts an etcd for this run; or the address of
    /// one that is there, `etcd://HOST:PORT[/CLUSTER]`
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
    /// The most that a push may take at the 99th percentile of the kills, and while the registry
    /// stands still, in milliseconds
    #[arg(long, default_value_t = 1000)]
    limit: u64,
    /// Write what came of it there as JSON, and as text beside it (.md)
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let shown = tracing_subscriber::fmt().with_env_filter(filter);
    shown.with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let plan = Plan {
        program: cli.program,
        kills: cli.kills,
        registry: cli.registry,
        stop_registry: cli.stop_registry.map(Duration::from_secs),
        seed: cli.seed,
        undisturbed: cli.undisturbed,
    };
    let mut outcome = ChaosOutcome::default();
    if let Err(error) = run::run(&plan, &mut outcome).await {
        outcome.failed = Some(format!("{error:#}"));
    }
    let judgement = outcome.judge(&plan, Duration::from_millis(cli.limit));
    println!("{}", judgement.text);
    if let Some(path) = cli.results {
        let json = serde_json::to_string_pretty(&judgement.json)?;
        std::fs::write(&path, json + "\n")?;
        std::fs::write(path.with_extension("md"), format!("{}\n", judgement.text))?;
    }
    if judgement.missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("error: {}", judgement.missed.join("; "));
    Ok(ExitCode::FAILURE)
}
