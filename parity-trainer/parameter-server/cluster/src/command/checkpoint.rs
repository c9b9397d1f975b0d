//! `cluster checkpoint` and `cluster restore`.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::time::Duration;

use parapet_parameter_server::ArrayId;
use parapet_parameter_server_checkpoint::{Checkpoints, Manifest, place};
use parapet_parameter_server_registry::Registry;

use super::stop::Stop;
use super::{CommandError, RegistryArgs};
use crate::ClusterError;
use crate::checkpoint::{Progress, RestoreSettings, TakeSettings, restore, take};

/// Arguments of `cluster checkpoint`.
#[derive(Debug, clap::Args)]
pub struct TakeArgs {
    #[command(flatten)]
    registry: RegistryArgs,
    /// Where the servers keep checkpoints, as they were told: a folder that all of them share, or a URL of an object store
    #[arg(long, value_name = "PLACE")]
    checkpoints: String,
    /// Only this array; more than once for more [default: all]
    #[arg(long, value_name = "NUMBER")]
    array: Vec<u32>,
    /// Take one again and again, until it is ended
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// How many are kept, of each set of arrays
    #[arg(long, value_name = "COUNT", default_value = "3")]
    keep: NonZeroUsize,
    /// Seconds that one may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    within: u64,
    /// Seconds that pushes to these arrays may wait, each time that it is tried
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    stall: u64,
}

/// Arguments of `cluster restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    registry: RegistryArgs,
    /// Where the servers keep checkpoints, as they were told: a folder that all of them share, or a URL of an object store
    #[arg(long, value_name = "PLACE")]
    checkpoints: String,
    /// The checkpoint [default: the newest that is whole]
    #[arg(long)]
    number: Option<u64>,
    /// The newest of exactly this array; more than once for more
    #[arg(long, value_name = "NUMBER", conflicts_with = "number")]
    array: Vec<u32>,
    /// Servers that hold each range, as whoever leads has it
    #[arg(long, default_value = "2")]
    replicas: NonZeroUsize,
    /// Seconds that it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    within: u64,
}

/// Where a server keeps checkpoints.
pub(super) fn open(given: &str, keep: usize) -> Result<Checkpoints, ClusterError> {
    Ok(place(given, keep)?)
}

pub(super) async fn run_take(args: &TakeArgs) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let checkpoints = open(&args.checkpoints, args.keep.get())?;
    let registry = args.registry.registry.open().await?;
    let asked = stop.asked();
    tokio::pin!(asked);
    let mut every = args.every.map(|seconds| tokio::time::interval(Duration::from_secs(seconds)));
    if let Some(every) = &mut every {
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        if let Some(every) = &mut every {
            tokio::select! {
                () = &mut asked => return Ok(()),
                _ = every.tick() => {}
            }
        }
        let taken = tokio::select! {
            // Servers go on by themselves within seconds.
            () = &mut asked => return Err(ClusterError::Unready("no checkpoint was taken: it was ended before".into()).into()),
            taken = take_one(args, &registry, &checkpoints) => taken,
        };
        match (taken, args.every) {
            (Ok(manifest), None) => return say(&manifest, "was written to", &args.checkpoints),
            (Ok(manifest), Some(_)) => say(&manifest, "was written to", &args.checkpoints)?,
            (Err(error), None) => return Err(error.into()),
            // The next one may succeed: a cluster that changes, or a disk that is full for a while.
            (Err(error), Some(_)) => eprintln!("warning: {error}"),
        }
    }
}

async fn take_one(
    args: &TakeArgs,
    registry: &Registry,
    checkpoints: &Checkpoints,
) -> Result<Manifest, ClusterError> {
    let arrays = args.array.iter().copied().map(ArrayId).collect();
    let (within, stall) = (Duration::from_secs(args.within), Duration::from_secs(args.stall));
    let settings = TakeSettings { arrays, within, stall };
    take(registry, checkpoints, &settings, |progress| show("written", progress)).await
}

pub(super) async fn run_restore(args: &RestoreArgs) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let checkpoints = open(&args.checkpoints, 1)?;
    let registry = args.registry.registry.open().await?;
    let within = Duration::from_secs(args.within);
    let arrays = args.array.iter().copied().map(ArrayId).collect();
    let settings = RestoreSettings { number: args.number, arrays, replicas: args.replicas, within };
    tokio::select! {
        () = stop.asked() => {
            Err(ClusterError::Unready("nothing was restored: it was ended before".into()).into())
        }
        restored = restore(&registry, &checkpoints, &settings, |progress| show("read", progress)) => {
            say(&restored?, "was restored from", &args.checkpoints)
        }
    }
}

/// How far it is, where somebody looks.
fn show(what: &str, Progress { done, of }: Progress) {
    let mut screen = std::io::stderr().lock();
    if screen.is_terminal() {
        let end = if done == of { "\n" } else { "" };
        let _ = write!(screen, "\r{done} of {of} shards {what}{end}").and_then(|()| screen.flush());
    }
}

fn say(manifest: &Manifest, what: &str, place: &str) -> Result<(), CommandError> {
    let bytes: u64 = manifest.shards.iter().map(|shard| shard.bytes).sum();
    let clock = manifest.cut().finished().unwrap_or_default().0;
    let (number, arrays, shards) = (manifest.number, manifest.arrays.len(), manifest.shards.len());
    let line = format!(
        "checkpoint {number} {what} {place}: {arrays} arrays in {shards} shards, {bytes} bytes, every worker's updates up to \
         clock {clock}\n"
    );
    std::io::stdout().lock().write_all(line.as_bytes()).map_err(CommandError::Runtime)
}
