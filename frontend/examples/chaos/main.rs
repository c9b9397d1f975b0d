//! Serves for minutes while everything goes wrong that can, and has every answer judged by clients
//! who know it beforehand: `cargo xtask chaos serving`.
//!
//! Real processes: two frontends, four replicas of a linear model, two instances of its parity
//! models. All but one of each are reached by way of relays that can spoil answers. What is done
//! and when follows from the seed (`plan`); what an answer must be is a pure function (`check`);
//! what clients cannot see is read from the frontends' admin listeners (`watch`, `metrics`).
//!
//! | invariant | how it is seen |
//! |---|---|
//! | CG-1 | each request has one answer with its own id, no byte after it, at most 50 ms after its deadline; 504 not before the deadline; clients' counts of answers are the frontend's |
//! | CG-2 | an `exact` answer is the model's, bit for bit; not to be seen: whether one was in hand when a reconstruction went out |
//! | CG-3 | not to be seen from outside; `frontend/core/tests/invariants.rs` has it |
//! | CG-4 | no reconstruction, and no backup answer, sooner than the shortest hold-back, unless predictions may have been lost at once |
//! | CG-5 | one client asks alone for a quarter of the time: its groups fill from no other client, and every answer is judged |
//! | CG-6 | a reconstruction is the model's answer to its own query, bit for bit: sums are exact; nothing that is no number, no other shape; no audit disagrees |
//! | CG-7 | redundant requests within share and burst, each with one end; with the parity pool lost, answers go on |
//! | CG-8 | when all is over no query, group or body is left, though clients went away all along |
//! | blame | only instances are ejected that a fault touched; poison queries touch none |

#![allow(unreachable_pub, reason = "an example")]

mod check;
mod client;
mod clock;
mod configuration;
mod faults;
mod frontends;
mod metrics;
mod model;
mod outcome;
mod plan;
mod processes;
mod relay;
mod watch;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use parapet_frontend::tenants::Key;
use tokio::task::JoinSet;

use client::Client;
use clock::Clock;
use configuration::Topology;
use faults::FaultyInstances;
use frontends::Frontends;
use outcome::Record;

/// Clients that ask at the same time.
const CLIENTS: usize = 24;
/// After the last fault was made good, for ejections and restarts to be over.
const RECOVERY: Duration = Duration::from_secs(6);

/// Seconds of a run whose results are kept.
const WORTH_WRITING: u64 = 600;

/// Freezes, kills, spoils, reloads and rolls while clients ask, and judges every answer.
#[derive(Debug, Parser)]
struct Cli {
    /// The folder of parapet-frontend and parapet-instance
    #[arg(long)]
    programs: PathBuf,
    /// Where configurations, models and logs go
    #[arg(long)]
    folder: PathBuf,
    /// Seconds that the run lasts
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Of faults and questions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write what came of it there, as Markdown, if it lasts ten minutes or longer
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Only print what would be done
    #[arg(long)]
    plan: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let sound = run(&Cli::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        false
    });
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Shared by clients, faults and those who watch.
struct Run {
    clock: Clock,
    frontends: Frontends,
    cluster: FaultyInstances,
    record: Record,
}

async fn run(cli: &Cli) -> Result<bool> {
    let length = Duration::from_secs(cli.seconds);
    let planned = plan::draw(cli.seed, length, configuration::COUNT);
    if cli.plan {
        planned.iter().for_each(|planned| println!("{planned}"));
        return Ok(true);
    }
    let run = Arc::new(start(cli).await?);
    let (number, Cli { seconds, seed, .. }) = (planned.len(), cli);
    eprintln!("{number} faults in {seconds} s, seed {seed}; {CLIENTS} clients");

    let calm = length.saturating_sub(plan::CALM) + RECOVERY;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(Client::new(number, cli.seed, Arc::clone(&run)).run(length, calm));
    }
    let watching = tokio::spawn(watch::watch(Arc::clone(&run)));
    let mut faults = JoinSet::new();
    for planned in planned {
        faults.spawn(faults::act(planned, Arc::clone(&run)));
    }
    let finished = tokio::select! {
        _ = async { while faults.join_next().await.is_some() {} clients.join_all().await } => true,
        _ = tokio::signal::ctrl_c() => false,
    };
    let ran = run.clock.elapsed();
    watching.abort();
    if finished {
        watch::at_rest(&run).await?;
        for frontend in run.frontends.all() {
            run.record.violated_all(frontend.stop().await?);
        }
    } else {
        eprintln!("interrupted: what follows is a part of it");
    }
    let mut noted = run.record.noted.lock();
    (noted.spoilt, noted.frontends) = (run.cluster.spoilt(), run.frontends.started());
    let line = format!("cargo xtask chaos serving --seconds {seconds} --seed {seed}");
    let text = noted.text(&line, ran, run.clock.stalls());
    println!("{text}");
    if let Some(path) = cli.results.as_ref().filter(|_| finished && *seconds >= WORTH_WRITING) {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(finished && noted.violated == 0)
}

async fn start(cli: &Cli) -> Result<Run> {
    let (folder, programs) = (absolute(&cli.folder)?, absolute(&cli.programs)?);
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let repository = folder.join("models");
    fs::create_dir_all(&repository)
        .with_context(|| format!("cannot make {}", repository.display()))?;
    model::write_repository(&repository)?;
    let cluster = FaultyInstances::start(&programs, &folder, &repository, cli.seed).await?;
    let topology = Topology {
        repository,
        instances: cluster.addresses(),
        keys: std::array::from_fn(|_| Key::generate()),
    };
    let program = programs.join("parapet-frontend");
    Ok(Run {
        frontends: Frontends::start(program, folder, topology).await?,
        cluster,
        clock: Clock::start(),
        record: Record::default(),
    })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: no path", path.display()))
}
