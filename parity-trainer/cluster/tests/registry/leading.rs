//! Leaders, elected and deposed, change the table of a cluster whose servers come and go. The
//! servers here only join, report and believe; what they would copy is not there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::{conformance, support};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{
    ArrayInfo, Joining, LeaderConfig, Member, Membership, Registry, Report, Revision, ServerInfo,
    View, lead,
};
use parapet_parameter_server::{
    ArrayId, Clock, CoordinatorConfig, Epoch, HandOver, KeyRange, NodeId, Placement, Route, Routing,
};
use support::{Fixture, server, until};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const ARRAY: ArrayId = ArrayId(1);

conformance!(
    a_dead_server_is_replaced,
    a_dead_leader_is_replaced_at_once,
    a_leader_that_does_not_act_is_replaced,
    a_newcomer_gets_its_share_and_gives_it_back,
    a_hand_over_that_hangs_is_given_up,
    an_outage_removes_nobody,
    dead_workers_are_taken_off,
);

/// A server's membership with its part in the election.
struct Node {
    membership: Arc<Membership>,
    leading: JoinHandle<()>,
    id: NodeId,
}

impl Node {
    async fn start(fixture: &Fixture, coordinator: CoordinatorConfig) -> Self {
        let registry = fixture.open().await;
        let membership = Arc::new(registry.join(Joining::Server(server("a:1"))).await.unwrap());
        let Member::Server(id) = membership.id() else {
            panic!("{:?}", membership.id())
        };
        let own = Arc::clone(&membership);
        let leading = tokio::spawn(async move {
            let _ = lead(&own, LeaderConfig { coordinator }).await;
        });
        Self {
            membership,
            leading,
            id,
        }
    }

    async fn die(self) {
        self.leading.abort();
        let _ = self.leading.await;
    }

    fn registry(&self) -> &Registry {
        self.membership.registry()
    }
}

fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        placement: Placement {
            points: 64,
            replicas: 2,
        },
        min_servers: 3,
        birth: Duration::from_millis(50),
        ..CoordinatorConfig::default()
    }
}

/// Three servers with an array of 8 shards, each on two of them.
async fn cluster(fixture: &Fixture, config: CoordinatorConfig) -> BTreeMap<NodeId, Node> {
    let mut nodes = BTreeMap::new();
    for _ in 0..3 {
        let node = Node::start(fixture, config).await;
        nodes.insert(node.id, node);
    }
    let first = nodes.values().next().unwrap();
    first
        .registry()
        .define(ARRAY, &ArrayInfo::new(KeyRange::new(0, 800), 8))
        .await
        .unwrap();
    let born = |view: &View| view.table.routing.routes().len() == 8;
    until(first.registry(), "the array is born", born).await;
    nodes
}

fn holds(view: &View, node: NodeId) -> bool {
    view.table
        .routing
        .routes()
        .iter()
        .any(|route| route.chain.contains(&node))
}

fn is_replicated(view: &View) -> bool {
    view.table.hand_overs.is_empty()
        && view
            .table
            .routing
            .routes()
            .iter()
            .all(|r| r.chain.len() == 2)
}

/// Does what tails do: proposes each hand-over, until the cluster is as it should be.
async fn carry_out_hand_overs(nodes: &BTreeMap<NodeId, Node>, is_done: impl Fn(&View) -> bool) {
    let registry = nodes.values().next().unwrap().registry();
    let mut views = registry.view();
    let work = async {
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if is_done(&view) {
                return;
            }
            for &hand_over in &view.table.hand_overs {
                let tail = view
                    .table
                    .routing
                    .route(ARRAY, hand_over.at.range.start)
                    .and_then(Route::tail);
                if let Some(tail) = tail.and_then(|tail| nodes.get(&tail)) {
                    tail.membership.report(Report::Propose(hand_over)).unwrap();
                }
            }
            views.changed().await.unwrap();
        }
    };
    if tokio::time::timeout(support::LIMIT, work).await.is_err() {
        panic!("never: {:#?}", registry.view().borrow());
    }
}

async fn a_dead_server_is_replaced(fixture: Fixture) {
    let mut nodes = cluster(&fixture, config()).await;
    let registry = fixture.open().await;
    let view = until(&registry, "somebody leads", |view| view.leader.is_some()).await;
    let leader = view.leader.unwrap().member;
    let dead = *nodes
        .keys()
        .find(|&&node| Member::Server(node) != leader && holds(&view, node))
        .unwrap();
    nodes.remove(&dead).unwrap().die().await;
    let start = Instant::now();
    for node in nodes.values() {
        node.membership.report(Report::Suspect(dead)).unwrap();
    }
    let after = until(&registry, "the dead server is in no chain", |view| {
        !holds(view, dead)
    })
    .await;
    fixture.assert_within(Duration::from_secs(1), start);
    for old in view
        .table
        .routing
        .routes()
        .iter()
        .filter(|route| route.chain.contains(&dead))
    {
        let new = after.table.routing.route(ARRAY, old.range.start).unwrap();
        assert!(new.epoch > old.epoch, "the old head is fenced");
        let rest: Vec<NodeId> = old
            .chain
            .iter()
            .copied()
            .filter(|&node| node != dead)
            .collect();
        assert_eq!(new.chain, rest);
    }
    carry_out_hand_overs(&nodes, is_replicated).await;
    // Suspicions of members that are gone are not kept.
    until(&registry, "nothing is reported", |view| {
        view.reports.is_empty()
    })
    .await;
}

async fn a_dead_leader_is_replaced_at_once(fixture: Fixture) {
    let mut nodes = cluster(&fixture, config()).await;
    let registry = fixture.open().await;
    let view = until(&registry, "somebody leads", |view| view.leader.is_some()).await;
    let leader = view.leader.unwrap();
    let Member::Server(dead) = leader.member else {
        panic!("{leader:?}")
    };
    nodes.remove(&dead).unwrap().die().await;
    let start = Instant::now();
    for node in nodes.values() {
        node.membership.report(Report::Suspect(dead)).unwrap();
    }
    let is_over =
        |view: &View| view.leader.is_some_and(|l| l.term > leader.term) && !holds(view, dead);
    until(&registry, "another one leads, and has acted", is_over).await;
    fixture.assert_within(Duration::from_secs(1), start);
}

/// A coordinator that hangs, or was killed and is listed still: there is no connection to it
/// that could break.
async fn a_leader_that_does_not_act_is_replaced(fixture: Fixture) {
    let registry = fixture.open().await;
    let hangs = registry.join(Joining::Coordinator).await.unwrap();
    let term = hangs.campaign(None).await.unwrap().unwrap();
    // While it led, it gave the array to three servers.
    let mut nodes = BTreeMap::new();
    for _ in 0..3 {
        let node = Node::start(&fixture, config()).await;
        nodes.insert(node.id, node);
    }
    let chain: Vec<NodeId> = nodes.keys().copied().collect();
    let range = KeyRange::new(0, 800);
    registry
        .define(ARRAY, &ArrayInfo::new(range, 1))
        .await
        .unwrap();
    let route = Route {
        array: ARRAY,
        range,
        epoch: Epoch(3),
        chain: chain.clone(),
    };
    let routing = Routing::new(3, vec![route]).unwrap();
    registry
        .change(term, Revision(0), &routing, &[])
        .await
        .unwrap();
    until(&registry, "the table is there", |view| {
        !view.table.routing.routes().is_empty()
    })
    .await;
    let dead = nodes.remove(&chain[0]).unwrap();
    let start = Instant::now();
    for node in nodes.values() {
        node.membership.report(Report::Suspect(dead.id)).unwrap();
    }
    let view = until(&registry, "its chain goes on without it", |view| {
        !holds(view, dead.id)
    })
    .await;
    fixture.assert_within(Duration::from_secs(1), start);
    assert!(
        view.leader.is_some_and(|leader| leader.term > term),
        "{:?}",
        view.leader
    );
    drop(dead);
}

async fn a_newcomer_gets_its_share_and_gives_it_back(fixture: Fixture) {
    let mut nodes = cluster(&fixture, config()).await;
    let newcomer = Node::start(&fixture, config()).await;
    let id = newcomer.id;
    nodes.insert(id, newcomer);
    carry_out_hand_overs(&nodes, |view| is_replicated(view) && holds(view, id)).await;
    // It leaves as it should: emptied first.
    let emptied = ServerInfo {
        weight: 0,
        ..server("a:1")
    };
    nodes[&id].membership.update(&emptied).unwrap();
    carry_out_hand_overs(&nodes, |view| is_replicated(view) && !holds(view, id)).await;
    nodes.remove(&id).unwrap().die().await;
    let registry = fixture.open().await;
    let view = until(&registry, "it is gone", |view| {
        !view.servers.contains_key(&id)
    })
    .await;
    assert!(is_replicated(&view), "nothing was lost with it");
}

async fn a_hand_over_that_hangs_is_given_up(fixture: Fixture) {
    let config = CoordinatorConfig {
        hand_over: Duration::from_millis(300),
        max_copies: 1,
        ..config()
    };
    let mut nodes = cluster(&fixture, config).await;
    let newcomer = Node::start(&fixture, config).await;
    let registry = fixture.open().await;
    let view = until(&registry, "it is to get a shard", |view| {
        !view.table.hand_overs.is_empty()
    })
    .await;
    let &[HandOver { at, to }] = &view.table.hand_overs[..] else {
        panic!("{:?}", view.table.hand_overs)
    };
    assert_eq!(to, newcomer.id);
    let epoch = |view: &View| {
        view.table
            .routing
            .route(at.array, at.range.start)
            .unwrap()
            .epoch
    };
    let chain = |view: &View| {
        view.table
            .routing
            .route(at.array, at.range.start)
            .unwrap()
            .chain
            .clone()
    };
    let renewed = until(&registry, "its epoch is renewed", |view| {
        epoch(view) > at.epoch
    })
    .await;
    assert_eq!(chain(&renewed), chain(&view), "under the same chain");
    // A later attempt succeeds.
    nodes.insert(newcomer.id, newcomer);
    carry_out_hand_overs(&nodes, |view| is_replicated(view) && holds(view, to)).await;
}

async fn an_outage_removes_nobody(fixture: Fixture) {
    let nodes = cluster(&fixture, config()).await;
    let registry = fixture.open().await;
    let is_settled = |view: &View| is_replicated(view) && view.servers.len() == 3;
    let before = until(&registry, "all are there", is_settled).await;
    fixture.suspend_for_long().await;
    let back = |view: &View| view.reachable && view.leader.is_some() && view.servers.len() == 3;
    until(&registry, "all are back", back).await;
    // One more server: when it has been given something, the leader has decided after the outage.
    let newcomer = Node::start(&fixture, config()).await;
    let id = newcomer.id;
    let given = |view: &View| {
        view.table
            .hand_overs
            .iter()
            .any(|hand_over| hand_over.to == id)
    };
    let after = until(&registry, "the leader goes on", given).await;
    assert_eq!(
        after.table.routing, before.table.routing,
        "no chain was touched"
    );
    drop(nodes);
}

async fn dead_workers_are_taken_off(fixture: Fixture) {
    let nodes = cluster(&fixture, config()).await;
    let registry = fixture.open().await;
    let dies = registry.join(Joining::Worker(Clock(3))).await.unwrap();
    let stays = registry.join(Joining::Worker(Clock(4))).await.unwrap();
    until(&registry, "both are listed", |view| {
        view.workers.workers.len() == 2
    })
    .await;
    drop(dies);
    let view = until(&registry, "one is listed", |view| {
        view.workers.workers.len() == 1
    })
    .await;
    assert_eq!(Member::Worker(view.workers.workers[0].0), stays.id());
    drop(nodes);
}

/// Each has a right to depose the other, and there is no third one to decide between them.
#[tokio::test(start_paused = true)]
async fn two_that_suspect_each_other_take_turns_at_leisure() {
    let fixture = Fixture::memory();
    let one = Node::start(&fixture, config()).await;
    let other = Node::start(&fixture, config()).await;
    one.membership.report(Report::Suspect(other.id)).unwrap();
    other.membership.report(Report::Suspect(one.id)).unwrap();
    let registry = fixture.open().await;
    let mut views = registry.view();
    let mut terms = BTreeSet::new();
    let watching = async {
        loop {
            terms.extend(views.borrow_and_update().leader.map(|leader| leader.term));
            views.changed().await.unwrap();
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(3), watching)
            .await
            .is_err(),
        "it goes on and on"
    );
    assert!((2..8).contains(&terms.len()), "{terms:?}");
}
