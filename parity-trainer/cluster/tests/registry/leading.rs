//! Leaders, elected and deposed, change the table of a cluster whose servers come and go. The
//! servers here only join, report and believe; what they would copy is not there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::node::wire::VERSION;
use parapet_cluster::registry::{
    ArrayInfo, Joining, Leader, Member, Membership, Registry, Report, Revision, ServerInfo, View,
    lead,
};
use parapet_parameter_server::{
    CoordinatorConfig, HandOver, KeyRange, LoadPlan, NodeId, Placement, Route, Routing,
};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::conformance;
use crate::support::{ARRAY, Fixture, LIMIT, join_server, route, server, until};

conformance!(
    dead_server_is_replaced,
    dead_leader_is_replaced_at_once,
    leader_that_does_not_act_is_replaced,
    newcomer_gets_its_share_and_gives_it_back,
    hand_over_that_hangs_is_given_up,
    outage_removes_no_server,
);

/// A server's membership with its part in the election. Dropped, it dies.
struct Node {
    membership: Arc<Membership>,
    _leading: AbortOnDropHandle<()>,
    id: NodeId,
}

impl Node {
    async fn start(fixture: &Fixture, config: CoordinatorConfig) -> Self {
        let (membership, id) = join_server(&fixture.open().await, "a:1").await;
        let membership = Arc::new(membership);
        let own = Arc::clone(&membership);
        let leading = tokio::spawn(async move {
            let _ = lead(&own, config).await;
        });
        let _leading = AbortOnDropHandle::new(leading);
        Self { membership, _leading, id }
    }
}

fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        placement: Placement { points: 64, replicas: 2 },
        min_servers: 3,
        birth: Duration::from_millis(50),
        ..CoordinatorConfig::default()
    }
}

type Nodes = BTreeMap<NodeId, Node>;

async fn start(fixture: &Fixture, config: CoordinatorConfig) -> Nodes {
    let mut nodes = BTreeMap::new();
    for _ in 0..3 {
        let node = Node::start(fixture, config).await;
        nodes.insert(node.id, node);
    }
    nodes
}

async fn define(registry: &Registry, shards: u64) {
    let (keys, description) = (KeyRange::new(0, 800), String::new());
    let info = ArrayInfo { keys, shards: keys.cut(shards).collect(), description };
    registry.define(ARRAY, &info).await.unwrap();
}

/// Three servers with an array of 8 shards, each on two of them, and one more registry.
async fn cluster(fixture: &Fixture, config: CoordinatorConfig) -> (Nodes, Registry) {
    let nodes = start(fixture, config).await;
    let registry = fixture.open().await;
    define(&registry, 8).await;
    until(&registry, |view| view.table.routing.routes().len() == 8).await;
    (nodes, registry)
}

async fn leader(registry: &Registry) -> (Arc<View>, Leader) {
    let view = until(registry, |view| view.leader.is_some()).await;
    let leader = view.leader.unwrap();
    (view, leader)
}

/// Has a server die, and all others suspect it.
fn kill(nodes: &mut Nodes, dead: NodeId) -> Instant {
    drop(nodes.remove(&dead).unwrap());
    for node in nodes.values() {
        node.membership.report(Report::Suspect(dead)).unwrap();
    }
    Instant::now()
}

fn is_replicated(view: &View) -> bool {
    let routes = view.table.routing.routes();
    let is_whole = routes.iter().all(|route| route.chain.len() == 2);
    view.table.hand_overs.is_empty() && is_whole
}

/// Does what tails do: proposes each hand-over, until the cluster is as it should be.
async fn carry_out_hand_overs(nodes: &Nodes, is_done: impl Fn(&View) -> bool) {
    let registry = nodes.values().next().unwrap().membership.registry();
    let mut views = registry.view();
    let work = async {
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if is_done(&view) {
                return;
            }
            for &hand_over in &view.table.hand_overs {
                let route = view.table.routing.route(ARRAY, hand_over.at.range.start);
                let tail = route.and_then(Route::tail);
                if let Some(tail) = tail.and_then(|tail| nodes.get(&tail)) {
                    tail.membership.report(Report::Propose(hand_over)).unwrap();
                }
            }
            views.changed().await.unwrap();
        }
    };
    let done = timeout(LIMIT, work).await;
    assert!(done.is_ok(), "never: {:#?}", registry.view().borrow());
}

async fn dead_server_is_replaced(fixture: Fixture) {
    let (mut nodes, registry) = cluster(&fixture, config()).await;
    let (view, leader) = leader(&registry).await;
    let mut followers = nodes.keys().filter(|&&node| Member::Server(node) != leader.member);
    let dead = *followers.find(|&&node| view.table.holds(node)).unwrap();
    let start = kill(&mut nodes, dead);
    let after = until(&registry, |view| !view.table.holds(dead)).await;
    fixture.assert_within(Duration::from_secs(1), start);
    let old = view.table.routing.routes().iter();
    for old in old.filter(|route| route.chain.contains(&dead)) {
        let new = after.table.routing.route(ARRAY, old.range.start).unwrap();
        assert!(new.epoch > old.epoch, "the old head is fenced");
        let rest = old.chain.iter().filter(|&&node| node != dead);
        assert_eq!(new.chain, rest.copied().collect::<Vec<_>>());
    }
    carry_out_hand_overs(&nodes, is_replicated).await;
    // Suspicions of members that are gone are not kept.
    until(&registry, |view| view.reports.is_empty()).await;
}

async fn dead_leader_is_replaced_at_once(fixture: Fixture) {
    let (mut nodes, registry) = cluster(&fixture, config()).await;
    let (_, leader) = leader(&registry).await;
    let Member::Server(dead) = leader.member else { panic!("{leader:?}") };
    let start = kill(&mut nodes, dead);
    let is_over = |view: &View| {
        view.leader.is_some_and(|next| next.term > leader.term) && !view.table.holds(dead)
    };
    until(&registry, is_over).await;
    fixture.assert_within(Duration::from_secs(1), start);
}

/// A coordinator that hangs, or was killed and is listed still: there is no connection to it
/// that could break.
async fn leader_that_does_not_act_is_replaced(fixture: Fixture) {
    let registry = fixture.open().await;
    let hangs = registry.join(Joining::Coordinator).await.unwrap();
    let term = hangs.campaign(None).await.unwrap().unwrap();
    // While it led, it gave the array to three servers.
    let mut nodes = start(&fixture, config()).await;
    let chain: Vec<NodeId> = nodes.keys().copied().collect();
    define(&registry, 1).await;
    let routing = Routing::new(3, vec![route(0, 800, 3, &chain)]).unwrap();
    let written = registry.change(term, Revision(0), &routing, &[], &LoadPlan::default()).await;
    written.unwrap();
    until(&registry, |view| !view.table.routing.routes().is_empty()).await;
    let dead = nodes.remove(&chain[0]).unwrap();
    let start = Instant::now();
    for node in nodes.values() {
        node.membership.report(Report::Suspect(dead.id)).unwrap();
    }
    let view = until(&registry, |view| !view.table.holds(dead.id)).await;
    fixture.assert_within(Duration::from_secs(1), start);
    assert!(view.leader.is_some_and(|leader| leader.term > term), "{:?}", view.leader);
}

async fn newcomer_gets_its_share_and_gives_it_back(fixture: Fixture) {
    let (mut nodes, registry) = cluster(&fixture, config()).await;
    let newcomer = Node::start(&fixture, config()).await;
    let id = newcomer.id;
    nodes.insert(id, newcomer);
    // The last one leaves as it should: emptied first.
    for emptied in [
        ServerInfo { protocol: VERSION + 1, ..server("a:1") },
        ServerInfo { standby: true, ..server("a:1") },
        ServerInfo { weight: 0, ..server("a:1") },
    ] {
        nodes[&id].membership.update(&server("a:1")).unwrap();
        carry_out_hand_overs(&nodes, |view| is_replicated(view) && view.table.holds(id)).await;
        nodes[&id].membership.update(&emptied).unwrap();
        carry_out_hand_overs(&nodes, |view| is_replicated(view) && !view.table.holds(id)).await;
    }
    drop(nodes.remove(&id));
    let view = until(&registry, |view| !view.servers.contains_key(&id)).await;
    assert!(is_replicated(&view), "nothing was lost with it");
}

async fn hand_over_that_hangs_is_given_up(fixture: Fixture) {
    let config =
        CoordinatorConfig { hand_over: Duration::from_millis(300), max_copies: 1, ..config() };
    let (mut nodes, registry) = cluster(&fixture, config).await;
    let newcomer = Node::start(&fixture, config).await;
    let view = until(&registry, |view| !view.table.hand_overs.is_empty()).await;
    let &[HandOver { at, to }] = &view.table.hand_overs[..] else {
        panic!("{:?}", view.table.hand_overs)
    };
    assert_eq!(to, newcomer.id);
    let route = |view: &View| {
        let route = view.table.routing.route(at.array, at.range.start);
        route.unwrap().clone()
    };
    let renewed = until(&registry, |view| route(view).epoch > at.epoch).await;
    assert_eq!(route(&renewed).chain, route(&view).chain, "under the same chain");
    // A later attempt succeeds.
    nodes.insert(newcomer.id, newcomer);
    carry_out_hand_overs(&nodes, |view| is_replicated(view) && view.table.holds(to)).await;
}

async fn outage_removes_no_server(fixture: Fixture) {
    let (_nodes, registry) = cluster(&fixture, config()).await;
    let is_settled = |view: &View| is_replicated(view) && view.servers.len() == 3;
    let before = until(&registry, is_settled).await;
    fixture.suspend_for_long().await;
    let back = |view: &View| view.reachable && view.leader.is_some() && view.servers.len() == 3;
    until(&registry, back).await;
    // One more server: when it has been given something, the leader has decided after the outage.
    let newcomer = Node::start(&fixture, config()).await;
    let is_given = |view: &View| {
        let mut hand_overs = view.table.hand_overs.iter();
        hand_overs.any(|new| new.to == newcomer.id)
    };
    let after = until(&registry, is_given).await;
    assert_eq!(after.table.routing, before.table.routing, "no chain was touched");
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
    let watched = timeout(Duration::from_secs(3), watching).await;
    assert!(watched.is_err(), "it goes on and on");
    assert!((2..8).contains(&terms.len()), "{terms:?}");
}
