//! A cluster from a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Epoch, NodeId, Placement, Routing, ShardRef, TransferId, WorkerId};
use parapet_parameter_server_checkpoint::{ArrayEntry, Checkpoints, Manifest, Restore, RestoreError};
use parapet_parameter_server_registry::{ArrayInfo, Registry, RegistryError, Restoring, View};
use tokio::time::{Instant, timeout};

use super::{Progress, ask_all, controls, left};
use crate::ClusterError;
use crate::control::Control;

/// Between looks at a cluster that changes.
const LOOK: Duration = Duration::from_millis(100);

/// What to start from, and how.
#[derive(Debug, Clone)]
pub struct RestoreSettings {
    /// The checkpoint's number; `None`: the newest that is whole.
    pub number: Option<u64>,
    /// The newest of exactly these arrays; none: of whatever arrays there are checkpoints, if they are the same in all.
    pub arrays: BTreeSet<ArrayId>,
    /// Servers that hold each range, as whoever leads the cluster has it.
    pub replicas: NonZeroUsize,
    /// How long it may take.
    pub within: Duration,
}

/// Gives the servers that are there the arrays of a checkpoint. Workers join after it.
///
/// # Errors
/// If there is no whole checkpoint, no server, another restore is under way, or the cluster knows the arrays; nothing has
/// changed then.
pub async fn restore(
    registry: &Registry,
    checkpoints: &Checkpoints,
    settings: &RestoreSettings,
    progress: impl FnMut(Progress),
) -> Result<Manifest, ClusterError> {
    let deadline = Instant::now() + settings.within;
    let manifest = choose(checkpoints, settings).await?;
    check(&registry.view().borrow(), &manifest)?;
    let restoring = registry.begin_restore().await?;
    let restored = hand_out(registry, &restoring, &manifest, settings, deadline, progress).await;
    // In this order: servers keep what they have read until they hear of the end.
    if let Err(error) = restoring.end().await {
        tracing::debug!(%error, "the restore ends with its lease");
    }
    restored.map(|()| manifest)
}

async fn hand_out(
    registry: &Registry,
    restoring: &Restoring,
    manifest: &Manifest,
    settings: &RestoreSettings,
    deadline: Instant,
    mut progress: impl FnMut(Progress),
) -> Result<(), ClusterError> {
    let view = registry.view().borrow().clone();
    let controls = controls(&view)?;
    let wanted = wanted(&view, &controls, manifest, settings.replicas)?;
    // No table comes to this epoch by itself, and no other restore has it.
    let sent = Epoch(restoring.number());
    let mut shards: BTreeMap<NodeId, Vec<ShardRef>> = BTreeMap::new();
    for route in wanted.routes() {
        for &node in &route.chain {
            let at = ShardRef { array: route.array, range: route.range, epoch: sent };
            shards.entry(node).or_default().push(at);
        }
    }
    let (number, transfer) = (manifest.number, TransferId(restoring.number()));
    let ask = move |control: Control, at| async move { control.restore_shard(number, at, transfer).await };
    ask_all(shards, &controls, deadline, &mut progress, ask).await?;
    let restore = Restore::new(manifest.clone(), 1);
    let info = |entry: &ArrayEntry| {
        let (keys, shards, description) = (entry.keys(), entry.shards, entry.description.clone());
        (entry.array(), ArrayInfo { keys, shards, description })
    };
    let arrays: Vec<(ArrayId, ArrayInfo)> = manifest.arrays.iter().map(info).collect();
    let past = manifest.cut().0.into_keys().max().unwrap_or(WorkerId(0));
    let mut views = registry.view();
    loop {
        let view = views.borrow_and_update().clone();
        check(&view, manifest)?;
        let mut named = wanted.routes().iter().flat_map(|route| &route.chain);
        if let Some(gone) = named.find(|node| !view.servers.contains_key(node)) {
            return Err(ClusterError::Unready(format!(
                "{gone} has gone since it read the checkpoint: try again"
            )));
        }
        let next = restore.table(&view.table.routing, sent, &wanted)?;
        match registry.restore(restoring, &view.table, &next, &arrays, past).await {
            Err(RegistryError::Conflict) if left(deadline) > LOOK => {
                // Other arrays' shards move, or this view is not the newest.
                let _ = timeout(LOOK, views.changed()).await;
            }
            Err(RegistryError::Conflict) => {
                let what = "the cluster changes all the time: nothing was restored; try again, or give it more time (--within)";
                return Err(ClusterError::Unready(what.into()));
            }
            other => return Ok(other?),
        }
    }
}

/// Who is to hold what, of the servers that are there.
fn wanted(
    view: &View,
    controls: &BTreeMap<NodeId, Control>,
    manifest: &Manifest,
    replicas: NonZeroUsize,
) -> Result<Routing, ClusterError> {
    let servers = view.servers.iter().filter(|(node, _)| controls.contains_key(node));
    let weights: BTreeMap<NodeId, u32> = servers.map(|(&node, info)| (node, info.weight)).collect();
    if weights.values().all(|&weight| weight == 0) {
        return Err(ClusterError::Unready("no server is there to restore it to: start some first".into()));
    }
    let placement = Placement { replicas: replicas.get(), ..Placement::default() };
    let cut = |entry: &ArrayEntry| {
        let array = entry.array();
        entry.keys().cut(entry.shards).map(move |range| (array, range)).collect::<Vec<_>>()
    };
    let ranges = manifest.arrays.iter().flat_map(cut);
    Ok(placement.ring(&weights).routing(0, ranges).map_err(RestoreError::from)?)
}

/// The checkpoint to start from.
async fn choose(checkpoints: &Checkpoints, settings: &RestoreSettings) -> Result<Manifest, ClusterError> {
    if let Some(number) = settings.number {
        return Ok(checkpoints.numbered(number).await?);
    }
    let found = if settings.arrays.is_empty() {
        let sets = checkpoints.sets().await?;
        if sets.len() > 1 {
            let name = |set: &BTreeSet<ArrayId>| {
                let options: Vec<String> = set.iter().map(|array| format!("--array {}", array.0)).collect();
                format!("`{}`", options.join(" "))
            };
            let sets: Vec<String> = sets.iter().map(name).collect();
            let sets = sets.join(" or ");
            return Err(ClusterError::Unready(format!(
                "there are checkpoints of different arrays: choose by {sets}, or by --number"
            )));
        }
        checkpoints.newest().await?
    } else {
        checkpoints.newest_of(&settings.arrays).await?
    };
    for skipped in &found.skipped {
        tracing::warn!(number = skipped.number, error = %skipped.error, "passes over a checkpoint that is not whole");
    }
    let none = || {
        ClusterError::Unready("there is no whole checkpoint there: see that the place is the servers'".into())
    };
    found.newest.ok_or_else(none)
}

/// Whether a cluster can be given these arrays.
fn check(view: &View, manifest: &Manifest) -> Result<(), ClusterError> {
    if !view.workers.workers.is_empty() {
        let count = view.workers.workers.len();
        return Err(ClusterError::Unready(format!(
            "{count} workers have joined: stop them, and start them after it"
        )));
    }
    let known = |array: &ArrayId| {
        view.arrays.contains_key(array)
            || view.table.routing.routes().iter().any(|route| route.array == *array)
    };
    manifest.set().into_iter().find(known).map_or(Ok(()), |array| Err(RestoreError::Known { array }.into()))
}
