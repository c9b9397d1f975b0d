//! A leader's decisions, one by one; the simulation has whole clusters of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod hand_overs;
mod missed;

use std::collections::BTreeSet;
use std::time::Duration;

use parapet_parameter_server::{
    ArrayId, Change, ClusterState, Coordinator, CoordinatorConfig, Epoch, HandOver, KeyRange,
    NodeId, Peer, Placement, Route, Routing, ShardRef, WorkerId,
};
use proptest::prelude::*;

const ARRAY: ArrayId = ArrayId(2);
const RANGE: KeyRange = KeyRange { start: 0, end: 10 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        placement: Placement {
            points: 16,
            replicas: 2,
        },
        absence: ms(1_000),
        doubt: ms(300),
        hand_over: ms(10_000),
        birth: ms(0),
        ..CoordinatorConfig::default()
    }
}

fn nodes(numbers: &[u64]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

/// These servers, with one shard held by this chain at epoch 5.
fn cluster(servers: &[u64], chain: &[u64]) -> ClusterState {
    let route = Route {
        array: ARRAY,
        range: RANGE,
        epoch: Epoch(5),
        chain: nodes(chain),
    };
    ClusterState {
        servers: servers.iter().map(|&node| (NodeId(node), 1)).collect(),
        arrays: [(ARRAY, (RANGE, 1))].into(),
        routing: Routing::new(9, vec![route]).unwrap(),
        ..ClusterState::default()
    }
}

fn at(epoch: u64) -> ShardRef {
    ShardRef {
        array: ARRAY,
        range: RANGE,
        epoch: Epoch(epoch),
    }
}

fn suspect(cluster: &mut ClusterState, pairs: &[(u64, u64)]) {
    let pair = |&(by, of): &(u64, u64)| (Peer::Server(NodeId(by)), NodeId(of));
    cluster.suspicions = pairs.iter().map(pair).collect();
}

fn chain(change: &Change) -> (u64, Vec<u64>) {
    let route = change.routing.route(ARRAY, 0).unwrap();
    (
        route.epoch.0,
        route.chain.iter().map(|node| node.0).collect(),
    )
}

#[test]
fn a_suspected_head_leaves_in_one_change() {
    let mut cluster = cluster(&[1, 2], &[1, 2]);
    let mut coordinator = Coordinator::new(config());
    assert_eq!(
        chain(&coordinator.decide(ms(0), &cluster)),
        (5, vec![1, 2]),
        "nothing to do"
    );
    suspect(&mut cluster, &[(2, 1)]);
    let change = coordinator.decide(ms(1), &cluster);
    assert_eq!(chain(&change), (6, vec![2]));
    assert_eq!(change.routing.version(), 10);
    // A suspicion that is not held any longer does not count.
    suspect(&mut cluster, &[]);
    assert_eq!(chain(&coordinator.decide(ms(2), &cluster)), (5, vec![1, 2]));
}

#[test]
fn whoever_is_cut_off_is_not_believed() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[1, 2]);
    cluster.arrays.clear();
    // Alone against all others, before they have noticed, and after.
    suspect(&mut cluster, &[(2, 1), (2, 3)]);
    assert_eq!(chain(&coordinator.decide(ms(0), &cluster)), (5, vec![1, 2]));
    suspect(&mut cluster, &[(2, 1), (2, 3), (1, 2)]);
    assert_eq!(chain(&coordinator.decide(ms(1), &cluster)), (6, vec![1]));
    // Two who suspect each other: one goes, and stays gone while both say so.
    cluster.servers.remove(&NodeId(3));
    suspect(&mut cluster, &[(1, 2)]);
    assert_eq!(chain(&coordinator.decide(ms(2), &cluster)), (6, vec![1]));
    suspect(&mut cluster, &[(1, 2), (2, 1)]);
    assert_eq!(chain(&coordinator.decide(ms(3), &cluster)), (6, vec![1]));
}

/// A dead server is listed until its lease ends. When one more dies meanwhile, the survivor
/// suspects all others, as one that is cut off would; but none of those claims to be alive.
#[test]
fn a_lone_survivor_is_believed_when_nobody_contradicts_it() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[3, 2]);
    cluster.arrays.clear();
    suspect(&mut cluster, &[(2, 1)]);
    coordinator.decide(ms(0), &cluster);
    suspect(&mut cluster, &[(2, 1), (2, 3)]);
    assert_eq!(
        chain(&coordinator.decide(ms(1_000), &cluster)),
        (5, vec![3, 2])
    );
    assert_eq!(coordinator.next_timer(), Some(ms(1_300)));
    assert_eq!(
        chain(&coordinator.decide(ms(1_299), &cluster)),
        (5, vec![3, 2])
    );
    assert_eq!(
        chain(&coordinator.decide(ms(1_300), &cluster)),
        (6, vec![2])
    );
    assert_eq!(coordinator.next_timer(), None);
    // A new leader knows nothing of all this, and takes as long.
    let mut new = Coordinator::new(config());
    assert_eq!(chain(&new.decide(ms(0), &cluster)), (5, vec![3, 2]));
    assert_eq!(chain(&new.decide(ms(300), &cluster)), (6, vec![2]));
    // Were it cut off, the others would say so by then.
    suspect(&mut cluster, &[(2, 1), (2, 3), (1, 2), (3, 2)]);
    assert_eq!(
        chain(&coordinator.decide(ms(1_301), &cluster)),
        (6, vec![3])
    );
}

#[test]
fn workers_are_believed_together() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2], &[1, 2]);
    cluster.workers = [WorkerId(7), WorkerId(8)].into();
    cluster.present_workers = cluster.workers.clone();
    cluster
        .suspicions
        .insert((Peer::Worker(WorkerId(7)), NodeId(1)));
    assert_eq!(chain(&coordinator.decide(ms(0), &cluster)).0, 5);
    cluster
        .suspicions
        .insert((Peer::Worker(WorkerId(8)), NodeId(1)));
    assert_eq!(chain(&coordinator.decide(ms(1), &cluster)), (6, vec![2]));
}

#[test]
fn the_last_server_of_a_shard_stays_and_the_shard_is_named() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[1, 2]);
    suspect(&mut cluster, &[(3, 2)]);
    cluster.servers.remove(&NodeId(1));
    assert_eq!(
        chain(&coordinator.decide(ms(0), &cluster)),
        (5, vec![1, 2]),
        "1 may be dead, and 2 alive"
    );
    let change = coordinator.decide(ms(1_000), &cluster);
    assert_eq!(
        (chain(&change).0, &change.unrecoverable[..]),
        (5, &[at(5)][..])
    );
    cluster.servers.insert(NodeId(1), 1);
    assert_eq!(
        chain(&coordinator.decide(ms(1_500), &cluster)),
        (6, vec![1]),
        "1 has come back"
    );
}

#[test]
fn a_proposal_ends_the_standstill_in_any_case() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[1]);
    cluster.proposals = [HandOver {
        at: at(5),
        to: NodeId(3),
    }]
    .into();
    assert_eq!(chain(&coordinator.decide(ms(0), &cluster)), (6, vec![1, 3]));
    // The newcomer died meanwhile.
    suspect(&mut cluster, &[(2, 3)]);
    assert_eq!(chain(&coordinator.decide(ms(1), &cluster)), (6, vec![1]));
    // A proposal of an earlier epoch is over.
    cluster.proposals = [HandOver {
        at: at(4),
        to: NodeId(2),
    }]
    .into();
    assert_eq!(chain(&coordinator.decide(ms(2), &cluster)).0, 5);
}

#[test]
fn an_array_is_born_when_there_are_enough_servers() {
    let mut coordinator = Coordinator::new(CoordinatorConfig {
        min_servers: 2,
        birth: ms(500),
        ..config()
    });
    let mut cluster = ClusterState {
        arrays: [(ARRAY, (RANGE, 3))].into(),
        ..ClusterState::default()
    };
    assert!(
        coordinator
            .decide(ms(0), &cluster)
            .routing
            .routes()
            .is_empty()
    );
    cluster.servers.insert(NodeId(1), 1);
    assert!(
        coordinator
            .decide(ms(0), &cluster)
            .routing
            .routes()
            .is_empty()
    );
    cluster.servers.insert(NodeId(2), 1);
    let born = coordinator.decide(ms(0), &cluster).routing;
    assert!(
        born.routes()
            .iter()
            .all(|route| route.epoch == Epoch(1) && route.chain.len() == 2)
    );
    assert_eq!(born.routes().len(), 3);
    // Its servers may not have heard of the first epoch yet, so that it lasts for a while.
    cluster.routing = born.clone();
    cluster.arrays.insert(ARRAY, (RANGE, 5));
    assert_eq!(coordinator.decide(ms(10), &cluster).routing, born);
    assert_eq!(coordinator.next_timer(), Some(ms(510)));
    assert_ne!(coordinator.decide(ms(510), &cluster).routing, born);
    // But not for the dead.
    suspect(&mut cluster, &[(1, 2)]);
    let mut other = Coordinator::new(CoordinatorConfig {
        birth: ms(500),
        ..config()
    });
    assert!(
        other
            .decide(ms(10), &cluster)
            .routing
            .routes()
            .iter()
            .all(|route| route.chain == nodes(&[1]))
    );
}

#[test]
fn a_server_without_the_state_leaves_the_chain() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2], &[1, 2]);
    cluster.lost = [(NodeId(2), at(5)), (NodeId(1), at(4))].into();
    assert_eq!(chain(&coordinator.decide(ms(0), &cluster)), (6, vec![1]));
    cluster.lost.insert((NodeId(1), at(5)));
    let change = coordinator.decide(ms(0), &cluster);
    assert_eq!(
        (chain(&change).0, &change.unrecoverable[..]),
        (5, &[at(5)][..])
    );
}

proptest! {
    /// Whatever the registry says, each shard changes at most as the planner's steps allow, and
    /// nothing is decided twice the same way on what came of it without end.
    #[test]
    fn decisions_settle(
        servers in prop::collection::btree_map((0u64..6).prop_map(NodeId), 0u32..3, 1..6),
        suspicions in prop::collection::btree_set((0u64..6, 0u64..6), 0..4),
        shards in 1u64..5,
        replicas in 1usize..4,
    ) {
        let placement = Placement {
            points: 8,
            replicas,
        };
        let config = CoordinatorConfig {
            placement,
            ..config()
        };
        let mut coordinator = Coordinator::new(config);
        let suspicions: BTreeSet<(Peer, NodeId)> = suspicions
            .into_iter()
            .map(|(by, of)| (Peer::Server(NodeId(by)), NodeId(of)))
            .collect();
        let mut cluster = ClusterState {
            servers,
            arrays: [(ARRAY, (KeyRange::new(0, 60), shards))].into(),
            ..ClusterState::default()
        };
        cluster.routing = coordinator.decide(ms(0), &cluster).routing;
        cluster.suspicions = suspicions;
        for round in 0u64.. {
            prop_assert!(round < 200, "no end: {cluster:?}");
            let change = coordinator.decide(ms(round), &cluster);
            if change.routing == cluster.routing
                && change.hand_overs == cluster.hand_overs
                && cluster.proposals.is_empty()
            {
                prop_assert!(change.hand_overs.is_empty());
                break;
            }
            for route in change.routing.routes() {
                let old = cluster.routing.route(ARRAY, route.range.start).unwrap();
                prop_assert!(
                    route.epoch == old.epoch && route == old || route.epoch == old.epoch.next()
                );
                prop_assert!(!route.chain.is_empty());
            }
            cluster.proposals = change.hand_overs.iter().copied().collect();
            cluster.routing = change.routing;
            cluster.hand_overs = change.hand_overs;
        }
        let live: usize = cluster
            .servers
            .iter()
            .filter(|&(_, &weight)| weight > 0)
            .count();
        if cluster.suspicions.is_empty() && live > 0 {
            for route in cluster.routing.routes() {
                prop_assert_eq!(route.chain.len(), replicas.min(live));
            }
        }
    }
}

#[test]
fn an_array_that_was_given_up_leaves_the_table() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2], &[1, 2]);
    let other = ArrayId(3);
    cluster.arrays.insert(other, (RANGE, 1));
    let both = coordinator.decide(ms(0), &cluster);
    assert!(both.routing.route(other, 0).is_some());
    cluster.routing = both.routing;
    cluster.arrays.insert(ARRAY, (RANGE, 0));
    let one = coordinator.decide(ms(1), &cluster);
    assert!(one.routing.version() > cluster.routing.version());
    assert_eq!(
        (
            one.routing.route(ARRAY, 0),
            one.routing.route(other, 0).is_some()
        ),
        (None, true)
    );
    cluster.routing = one.routing.clone();
    assert_eq!(
        coordinator.decide(ms(2), &cluster).routing,
        one.routing,
        "it does not come back"
    );
}
