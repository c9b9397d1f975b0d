//! A checkpoint of three servers goes on with two, five, or any other number, to the last bit.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use object_store::memory::InMemory;
use parapet_parameter_server::{Clock, Epoch, KeyRange, Refusal, Routing, ShardRef, TransferId};
use parapet_parameter_server_checkpoint::{
    CheckpointError, Checkpoints, CutError, Restore, RestoreError, ShardState,
};
use proptest::prelude::*;
use support::{Cluster, DENSE, SENT, SPARSE, WORKERS, arrays, cut, table, whole};

fn in_memory(keep: usize) -> Checkpoints {
    Checkpoints::new(Arc::new(InMemory::new()), "run/7".into(), keep)
}

/// Trains on.
fn train(cluster: &mut Cluster, clocks: std::ops::RangeInclusive<u64>, seed: u64) {
    for clock in clocks {
        for worker in WORKERS {
            cluster.push(worker, clock, seed);
        }
    }
}

fn assert_same(a: &Cluster, b: &Cluster) {
    for array in [DENSE, SPARSE] {
        assert_eq!(a.all(array), b.all(array));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_number_of_servers_goes_on_where_others_stopped(
        (points, replicas, shards) in (1u32..20, 1usize..4, 1u64..7),
        (new_points, new_replicas, new_shards) in (1u32..20, 1usize..4, 1u64..7),
        other in 1u64..7,
        before in 0u64..4,
        piece in 1usize..50,
        seed in 0u64..1000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut cluster = Cluster::new(3, table(3, points, replicas, shards));
            train(&mut cluster, 1..=before, seed);
            let checkpoints = in_memory(2);
            let manifest = cluster.checkpoint(&checkpoints).await.unwrap();
            assert_eq!(manifest.cut().finished(), Some(Clock(before)));
            let mut restored = Vec::new();
            for servers in [2, 5, other] {
                let wanted = table(servers, new_points, new_replicas, new_shards);
                restored.push(Cluster::restored(&checkpoints, servers, &wanted, piece).await);
            }
            train(&mut cluster, before + 1..=before + 2, seed);
            for other in &mut restored {
                train(other, before + 1..=before + 2, seed);
                assert_same(&cluster, other);
                assert_eq!(other.refused, []);
            }
        });
    }
}

#[tokio::test]
async fn a_held_cluster_comes_to_a_cut() {
    let mut cluster = Cluster::new(3, table(3, 8, 2, 4));
    train(&mut cluster, 1..=2, 0);
    cluster.push(WORKERS[0], 3, 0);
    let both = BTreeSet::from([DENSE, SPARSE]);
    let latest = cluster.servers.values_mut().map(|server| server.hold(&both, None)).max().unwrap();
    assert_eq!(latest, Clock(3));
    for server in cluster.servers.values_mut() {
        assert!(server.hold(&both, Some(Clock(4))) <= Clock(4));
    }
    // One worker is fast.
    cluster.push(WORKERS[0], 4, 0);
    cluster.push(WORKERS[0], 5, 0);
    assert!(!cluster.refused.is_empty() && cluster.refused.iter().all(|r| r.reason == Refusal::Stopped));
    cluster.push(WORKERS[1], 3, 0);
    cluster.push(WORKERS[1], 4, 0);
    let all = cut(&cluster.states()).unwrap();
    assert!(WORKERS.iter().all(|worker| all.0[worker] == Clock(4)), "{all:?}");
    // What happens after the copies were taken does not matter to them.
    let states = cluster.states();
    for server in cluster.servers.values_mut() {
        server.hold(&both, None);
    }
    cluster.push(WORKERS[0], 5, 0);
    assert_eq!(cut(&states).unwrap(), all);
}

#[tokio::test]
async fn a_shard_is_copied_piece_by_piece() {
    let mut cluster = Cluster::new(1, table(1, 4, 1, 2));
    train(&mut cluster, 1..=3, 0);
    let whole = cluster.states();
    let server = cluster.servers.values().next().unwrap();
    for (view, whole) in server.shards().zip(whole) {
        for limit in [1, 3, 1_000] {
            let mut pieces: Vec<ShardState> = Vec::new();
            let mut next = view.at.range.start;
            while next < view.at.range.end {
                pieces.push(ShardState::piece(&view, next, limit));
                next = pieces.last().unwrap().range().end;
            }
            assert_eq!(ShardState::joined(&pieces).unwrap(), whole);
        }
    }
}

#[tokio::test]
async fn states_of_different_moments_make_no_checkpoint() {
    let mut cluster = Cluster::new(3, table(3, 8, 2, 4));
    train(&mut cluster, 1..=2, 0);
    let checkpoints = in_memory(2);
    let before = cluster.states();
    cluster.push(WORKERS[0], 3, 0);
    let mut entries = Vec::new();
    for (i, (old, new)) in before.iter().zip(cluster.states()).enumerate() {
        entries.push(checkpoints.write_shard(1, if i == 3 { old } else { &new }).await.unwrap());
    }
    let error = checkpoints.commit(1, arrays(), entries.clone()).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Cut(CutError::Uneven { .. })), "{error}");
    entries.remove(2);
    let error = checkpoints.commit(1, arrays(), entries).await.unwrap_err();
    assert!(matches!(error, CheckpointError::Cut(CutError::Gap { .. })), "{error}");
    assert!(checkpoints.newest().await.unwrap().newest.is_none());
    checkpoints.abandon(1).await.unwrap();
    assert_eq!(checkpoints.begin().await.unwrap(), 1, "nothing of it is left");
    checkpoints.abandon(1).await.unwrap();
    assert_eq!(
        checkpoints.begin().await.unwrap(),
        2,
        "but what was begun keeps its number: a file may still come"
    );
}

#[tokio::test]
async fn keys_that_are_not_in_a_checkpoint_are_named() {
    let cluster = Cluster::new(2, table(2, 8, 1, 3));
    let checkpoints = in_memory(2);
    let manifest = cluster.checkpoint(&checkpoints).await.unwrap();
    let restore = Restore::new(manifest, 10);
    let states = cluster.states();
    let larger = KeyRange::new(0, whole().end + 5);
    let missing = RestoreError::Missing { array: DENSE, range: KeyRange::new(whole().end, larger.end) };
    let at = |array, range| ShardRef { array, range, epoch: Epoch(1) };
    assert_eq!(restore.pieces(at(DENSE, larger), TransferId(1), &states), Err(missing));
    let nothing = RestoreError::Missing { array: SPARSE, range: whole() };
    assert_eq!(restore.pieces(at(SPARSE, whole()), TransferId(1), &[]), Err(nothing));
    let none = Routing::default();
    assert_eq!(restore.table(&none, SENT, &none).unwrap().version(), 1);
    let known = RestoreError::Known { array: DENSE };
    assert_eq!(restore.table(&cluster.routing, SENT, &none), Err(known), "nothing that is there is replaced");
}
