//! Servers write a checkpoint while workers push, and others start from it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, KeyRange};
use parapet_parameter_server_checkpoint::{Checkpoints, Manifest, place};
use parapet_parameter_server_cluster::checkpoint::{RestoreSettings, TakeSettings, restore, take};
use parapet_parameter_server_cluster::{ClusterError, ConsistencySpec, WorkerRole};
use parapet_parameter_server_node::TaskSpec;
use parapet_parameter_server_node::transport::Tcp;
use support::{ARRAY, Cluster, KEYS, WIDTH, assert_sum, ones, push, soon, spec};
use tokio::runtime::Handle;
use tokio::sync::watch;

const WITHIN: Duration = Duration::from_secs(60);

fn checkpoints(folder: &Path) -> Checkpoints {
    place(folder.to_str().unwrap(), 2).unwrap()
}

async fn cluster(servers: usize, folder: &Path) -> Cluster<Tcp> {
    Cluster::empty(Tcp, servers, 2, false, Some(checkpoints(folder))).await
}

async fn take_all(cluster: &Cluster<Tcp>, folder: &Path) -> Result<Manifest, ClusterError> {
    take_some(cluster, folder, &[]).await
}

async fn take_some(
    cluster: &Cluster<Tcp>,
    folder: &Path,
    arrays: &[ArrayId],
) -> Result<Manifest, ClusterError> {
    let settings = TakeSettings { arrays: arrays.iter().copied().collect(), within: WITHIN, stall: WITHIN };
    soon(take(&cluster.registry, &checkpoints(folder), &settings, |_| ())).await
}

/// A folder with a checkpoint of an array that nobody has pushed to.
async fn with_a_checkpoint() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let old = cluster(1, folder.path()).await;
    old.define(ConsistencySpec::Eventual).await;
    take_all(&old, folder.path()).await.unwrap();
    folder
}

async fn restore_newest(cluster: &Cluster<Tcp>, folder: &Path) -> Result<Manifest, ClusterError> {
    restore_some(cluster, folder, &[]).await
}

async fn restore_some(
    cluster: &Cluster<Tcp>,
    folder: &Path,
    arrays: &[ArrayId],
) -> Result<Manifest, ClusterError> {
    let arrays: BTreeSet<ArrayId> = arrays.iter().copied().collect();
    let settings = RestoreSettings { number: None, arrays, replicas: NonZeroUsize::MIN, within: WITHIN };
    soon(restore(&cluster.registry, &checkpoints(folder), &settings, |_| ())).await
}

/// Pushes ones until told to stop, and says how far it is. Gives what was acknowledged.
async fn go_on(worker: &WorkerRole, so_far: watch::Sender<u64>, stop: watch::Receiver<bool>) -> u64 {
    let mut clock = 0;
    while !*stop.borrow() {
        clock += 1;
        push(worker, clock..=clock).await;
        so_far.send_replace(clock);
    }
    clock
}

/// Pushes ones to these keys.
async fn push_half(worker: &WorkerRole, clock: u64, range: KeyRange) {
    let values = ones().slice(0..range.len() as usize * WIDTH);
    let pushed = worker.worker().push(TaskSpec { range, ..spec(clock) }, values).await.unwrap();
    soon(pushed).await.unwrap();
}

/// What every number of the array is if workers have pushed ones up to these clocks.
fn sum(manifest: &Manifest) -> f32 {
    manifest.cut().0.values().map(|clock| clock.0 as f32).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_write_a_cut_while_workers_push_and_others_start_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let (manifest, total) = {
        let cluster = cluster(3, folder.path()).await;
        cluster.define(ConsistencySpec::Eventual).await;
        let (one, other) = (
            cluster.worker(ConsistencySpec::Eventual).await,
            cluster.worker(ConsistencySpec::Eventual).await,
        );
        let (end, stop) = watch::channel(false);
        let (ahead, mut so_far) = watch::channel(0);
        let taking = async {
            let manifest = take_all(&cluster, folder.path()).await.unwrap();
            let before = *so_far.borrow();
            // In the middle of others.
            soon(so_far.wait_for(|&clock| clock > before + 3)).await.unwrap();
            let later = take_all(&cluster, folder.path()).await.unwrap();
            assert!(later.number > manifest.number);
            end.send(true).unwrap();
            later
        };
        let (manifest, first, second) =
            tokio::join!(taking, go_on(&one, ahead, stop.clone()), go_on(&other, watch::channel(0).0, stop));
        assert_sum(&one, 1, (first + second) as f32).await;
        (manifest, first + second)
    };
    assert_eq!(manifest.cut().0.len(), 2, "both workers are in it");
    assert!(sum(&manifest) > 0.0 && sum(&manifest) <= total as f32);
    for servers in [2, 5] {
        let cluster = cluster(servers, folder.path()).await;
        assert_eq!(restore_newest(&cluster, folder.path()).await.unwrap(), manifest);
        let worker = cluster.worker(ConsistencySpec::Eventual).await;
        let known = manifest.cut().0.into_keys().max().unwrap();
        assert!(worker.id() > known, "its clock must not be taken for {known}'s");
        assert_sum(&worker, 1, sum(&manifest)).await;
        push(&worker, 1..=3).await;
        assert_sum(&worker, 4, sum(&manifest) + 3.0).await;
        // What goes on can be written again.
        let next = take_all(&cluster, folder.path()).await.unwrap();
        assert_eq!(next.cut().0[&worker.id()], Clock(3));
        std::fs::remove_dir_all(folder.path().join(format!("{:020}", next.number))).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_has_is_not_replaced_and_a_new_one_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let old = cluster(2, folder.path()).await;
    old.define(ConsistencySpec::Bsp).await;
    let worker = old.worker(ConsistencySpec::Bsp).await;
    push(&worker, 1..=5).await;
    let manifest = take_all(&old, folder.path()).await.unwrap();
    assert_eq!(manifest.cut().finished(), Some(Clock(5)));
    push(&worker, 6..=6).await;
    let held = restore_newest(&old, folder.path()).await.unwrap_err().to_string();
    assert!(held.contains("1 workers have joined"), "{held}");
    worker.leave().await.unwrap();
    old.until("nobody works", |view| view.workers.workers.is_empty()).await;
    let held = restore_newest(&old, folder.path()).await.unwrap_err().to_string();
    assert!(held.starts_with("the cluster knows array 1 already"), "{held}");

    let mut new = cluster(0, folder.path()).await;
    let none = restore_newest(&new, folder.path()).await.unwrap_err().to_string();
    assert!(none.contains("no server is there"), "{none}");
    new.join().await;
    let other = new.registry.begin_restore().await.unwrap();
    let second = restore_newest(&new, folder.path()).await.unwrap_err().to_string();
    assert!(second.contains("another restore is under way"), "{second}");
    other.end().await.unwrap();
    restore_newest(&new, folder.path()).await.unwrap();
    let worker = new.worker(ConsistencySpec::Bsp).await;
    push(&worker, 1..=1).await;
    assert_sum(&worker, 2, 6.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_fails_leaves_nothing() {
    let folder = with_a_checkpoint().await;
    let mut new = cluster(2, folder.path()).await;
    new.keep_no_checkpoints();
    new.join().await;
    let refused = restore_newest(&new, folder.path()).await.unwrap_err().to_string();
    assert!(refused.contains("start it with --checkpoints"), "{refused}");
    new.until("it is over", |view| view.restoring.is_none()).await;
    soon(async {
        while new.copies().await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The number is as free as before.
    new.define(ConsistencySpec::Bsp).await;
    let worker = new.worker(ConsistencySpec::Bsp).await;
    push(&worker, 1..=2).await;
    assert_sum(&worker, 2, 2.0).await;
}

/// All is read, and then somebody else makes the array known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_for_a_restore_that_fails_is_dropped() {
    let folder = with_a_checkpoint().await;
    let new = cluster(2, folder.path()).await;
    let settings = RestoreSettings {
        number: None,
        arrays: BTreeSet::new(),
        replicas: NonZeroUsize::MIN,
        within: WITHIN,
    };
    let place = checkpoints(folder.path());
    let mut read = 0;
    let restoring = restore(&new.registry, &place, &settings, |progress| {
        if progress.done == progress.of {
            let known = async {
                read = new.copies().await;
                new.define(ConsistencySpec::Bsp).await;
            };
            tokio::task::block_in_place(|| Handle::current().block_on(known));
        }
    });
    let refused = soon(restoring).await.unwrap_err().to_string();
    assert!(refused.starts_with("the cluster knows array 1 already"), "{refused}");
    assert!(read > 0);
    soon(async {
        while new.copies().await > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_of_different_arrays_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let other = ArrayId(2);
    {
        let old = cluster(1, folder.path()).await;
        old.define(ConsistencySpec::Eventual).await;
        old.define_as(other, ConsistencySpec::Eventual).await;
        take_some(&old, folder.path(), &[other]).await.unwrap();
        take_all(&old, folder.path()).await.unwrap();
    }
    let new = cluster(1, folder.path()).await;
    let which = restore_newest(&new, folder.path()).await.unwrap_err().to_string();
    assert!(which.contains("`--array 1 --array 2` or `--array 2`"), "{which}");
    let restored = restore_some(&new, folder.path(), &[other]).await.unwrap();
    assert_eq!(restored.set(), BTreeSet::from([other]));
    let view = new.until("it is there", |view| view.arrays.contains_key(&other)).await;
    assert!(!view.arrays.contains_key(&ARRAY));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_written_says_why_and_workers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let other = Cluster::empty(Tcp, 1, 1, false, None).await;
    let nothing = take_all(&other, folder.path()).await.unwrap_err().to_string();
    assert!(nothing.contains("holds no array"), "{nothing}");
    other.define(ConsistencySpec::Eventual).await;
    let worker = other.worker(ConsistencySpec::Eventual).await;
    push(&worker, 1..=2).await;
    let place = take_all(&other, folder.path()).await.unwrap_err().to_string();
    assert!(place.contains("start it with --checkpoints"), "{place}");
    let missing = take_some(&other, folder.path(), &[ArrayId(9)]).await.unwrap_err().to_string();
    assert!(missing.starts_with("there is no array 9"), "{missing}");
    // One worker is ahead in half of the keys, and stays there.
    push_half(&worker, 3, KeyRange::new(0, KEYS / 2)).await;
    let uneven = take_some(&other, folder.path(), &[ARRAY]).await.unwrap_err().to_string();
    assert!(uneven.contains("has come to clock") && uneven.contains("--array"), "{uneven}");
    assert!(checkpoints(folder.path()).sets().await.unwrap().is_empty());
    push_half(&worker, 3, KeyRange::new(KEYS / 2, KEYS)).await;
    push(&worker, 4..=5).await;
    let none = restore_newest(&other, folder.path()).await.unwrap_err().to_string();
    assert!(none.contains("no whole checkpoint"), "{none}");
}
