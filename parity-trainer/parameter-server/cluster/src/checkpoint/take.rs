//! A checkpoint of what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parapet_parameter_server::{ArrayId, NodeId, Route, ShardRef};
use parapet_parameter_server_checkpoint::{ArrayEntry, CheckpointError, Checkpoints, Manifest, ShardEntry};
use parapet_parameter_server_registry::{ArrayInfo, Registry, Revision, View};
use tokio::time::{Instant, sleep, timeout_at};

use super::held::Held;
use super::settle::settle;
use super::{Progress, ask_all, left};
use crate::ClusterError;
use crate::control::Control;

/// How often it is tried while the cluster changes.
const ATTEMPTS: u32 = 5;
/// After the first attempt; twice as long after each, and as long as the attempt took at least: pushes are to go on meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

/// What is to be in a checkpoint.
#[derive(Debug, Clone)]
pub struct TakeSettings {
    /// Only these arrays; none: all.
    pub arrays: BTreeSet<ArrayId>,
    /// How long it may take.
    pub within: Duration,
    /// How long pushes to these arrays may wait, each time that it is tried.
    pub stall: Duration,
}

/// Takes a checkpoint of a cluster, while it runs.
///
/// It is tried a few times while the cluster changes; servers take pushes again whatever comes of it.
///
/// # Errors
/// If there is nothing to write, a server cannot write, or the servers have not come to one clock in time.
pub async fn take(
    registry: &Registry,
    checkpoints: &Checkpoints,
    settings: &TakeSettings,
    mut progress: impl FnMut(Progress),
) -> Result<Manifest, ClusterError> {
    let begun = Instant::now();
    let deadline = begun + settings.within;
    let mut attempts = 0;
    loop {
        let since = Instant::now();
        let cause = match attempt(registry, checkpoints, settings, deadline, &mut progress).await {
            Ok(manifest) => return Ok(manifest),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::NoCut(cause)) => return Err(ClusterError::NoCut { waited: begun.elapsed(), cause }),
            Err(Failure::Passing(cause)) => cause,
        };
        let pause = PAUSE.saturating_mul(1 << attempts).max(since.elapsed());
        attempts += 1;
        if attempts >= ATTEMPTS || left(deadline) < pause {
            return Err(ClusterError::NoCut { waited: begun.elapsed(), cause });
        }
        tracing::info!(cause, "another attempt at a checkpoint");
        sleep(pause).await;
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The next one may succeed.
    Passing(String),
    /// The next one would make pushes wait for nothing again.
    NoCut(String),
    Final(ClusterError),
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Self {
        match error {
            // A server may just have died, and others take its place.
            error @ ClusterError::Control { .. } => Self::Passing(error.to_string()),
            ClusterError::Checkpoint(CheckpointError::Cut(error)) => Self::Passing(error.to_string()),
            error => Self::Final(error),
        }
    }
}

async fn attempt(
    registry: &Registry,
    checkpoints: &Checkpoints,
    settings: &TakeSettings,
    deadline: Instant,
    progress: &mut impl FnMut(Progress),
) -> Result<Manifest, Failure> {
    let view = registry.view().borrow().clone();
    let (arrays, routes) = contents(&view, &settings.arrays)?;
    let held = Held::begin(servers(&view, &routes)?, arrays.iter().map(ArrayEntry::array).collect()).await?;
    let end = deadline.min(held.since + settings.stall);
    let written =
        cut_and_write(&held, &routes, (registry, view.table.revision), checkpoints, end, progress).await;
    // What is written does not change any more.
    held.end().await;
    let (number, shards) = written?;
    let committed = match shards {
        Ok(shards) => checkpoints.commit(number, arrays, shards).await.map_err(ClusterError::from),
        Err(error) => Err(error),
    };
    if committed.is_err()
        && let Err(error) = checkpoints.abandon(number).await
    {
        tracing::warn!(%error, number, "what was written of a checkpoint could not be removed");
    }
    Ok(committed?)
}

/// What pushes wait for. Gives the number of what was begun, and the shards if all are written.
async fn cut_and_write(
    held: &Held,
    routes: &[Route],
    (registry, table): (&Registry, Revision),
    checkpoints: &Checkpoints,
    end: Instant,
    progress: &mut impl FnMut(Progress),
) -> Result<(u64, Result<Vec<ShardEntry>, ClusterError>), Failure> {
    settle(held, routes, registry, table, end).await?;
    let slow = || Failure::NoCut("the place for checkpoints does not answer: see whether it is slow".into());
    let begun = timeout_at(end, checkpoints.begin()).await.map_err(|_| slow())?;
    let number = begun.map_err(ClusterError::from)?;
    Ok((number, write(held.controls(), routes, number, end, progress).await))
}

/// The arrays to write, and the shards they consist of.
fn contents(view: &View, wanted: &BTreeSet<ArrayId>) -> Result<(Vec<ArrayEntry>, Vec<Route>), ClusterError> {
    let live = || view.arrays.iter().filter(|(_, info)| info.shards > 0);
    if let Some(missing) = wanted.iter().find(|array| live().all(|(known, _)| known != *array)) {
        return Err(ClusterError::Unready(format!("there is no {missing}: name one that `top` shows")));
    }
    let chosen = || live().filter(|(array, _)| wanted.is_empty() || wanted.contains(array));
    let entry = |(&array, info): (&ArrayId, &ArrayInfo)| {
        ArrayEntry::new(array, info.keys, info.shards, info.description.clone())
    };
    let arrays: Vec<ArrayEntry> = chosen().map(entry).collect();
    let routes: Vec<Route> = chosen()
        .flat_map(|(&array, info)| view.table.routing.overlapping(array, info.keys).cloned())
        .collect();
    if routes.is_empty() {
        let what = "the cluster holds no array: there is nothing to write a checkpoint of";
        return Err(ClusterError::Unready(what.into()));
    }
    Ok((arrays, routes))
}

/// The control planes of all servers that hold these shards.
fn servers(view: &View, routes: &[Route]) -> Result<BTreeMap<NodeId, Control>, Failure> {
    let named: BTreeSet<NodeId> = routes.iter().flat_map(|route| route.chain.iter().copied()).collect();
    let control = |node: NodeId| {
        let info = view.servers.get(&node).filter(|info| !info.control.is_empty());
        let info =
            info.ok_or_else(|| Failure::Passing(format!("{node} is not there, or takes no questions")))?;
        Ok((node, Control::new(node, &info.control)?))
    };
    named.into_iter().map(control).collect()
}

pub(super) const fn shard(route: &Route) -> ShardRef {
    ShardRef { array: route.array, range: route.range, epoch: route.epoch }
}

/// Has each tail write its shards.
async fn write(
    controls: &BTreeMap<NodeId, Control>,
    routes: &[Route],
    number: u64,
    deadline: Instant,
    progress: &mut impl FnMut(Progress),
) -> Result<Vec<ShardEntry>, ClusterError> {
    let mut shards: BTreeMap<NodeId, Vec<ShardRef>> = BTreeMap::new();
    for route in routes {
        if let Some(tail) = route.tail() {
            shards.entry(tail).or_default().push(shard(route));
        }
    }
    let ask = move |control: Control, at| async move { control.write_shard(number, at).await };
    ask_all(shards, controls, deadline, progress, ask).await
}
