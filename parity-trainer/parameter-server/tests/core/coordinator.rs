//! A leader's decisions, one by one; the simulation has whole clusters of them.

use crate::support::*;

const RANGE: KeyRange = KeyRange::new(0, 10);

pub fn config() -> CoordinatorConfig {
    CoordinatorConfig {
        absence: ms(1_000),
        doubt: ms(300),
        hand_over: ms(10_000),
        birth: ms(0),
        ..CoordinatorConfig::default()
    }
}

fn at(epoch: u64) -> ShardRef {
    shard(0, 10, epoch)
}

fn to(node: u64, epoch: u64) -> HandOver {
    let (at, to) = (at(epoch), NodeId(node));
    HandOver { at, to }
}

/// A leader, and the registry that it looks at.
#[derive(Clone)]
struct Leading(Coordinator, ClusterState);

impl Leading {
    /// These servers, with one shard held by this chain at epoch 5.
    fn new(servers: &[u64], chain: &[u64]) -> Self {
        let cluster = ClusterState {
            servers: servers.iter().map(|&node| (NodeId(node), 1)).collect(),
            arrays: [(ARRAY, RANGE.cut(1).collect())].into(),
            routing: table(9, [Route::new(at(5), nodes(chain))]),
            ..ClusterState::default()
        };
        Self(Coordinator::new(config()), cluster)
    }

    fn suspect(&mut self, pairs: &[(u64, u64)]) {
        let pair = |&(by, of): &(u64, u64)| (server(by), NodeId(of));
        self.1.suspicions = pairs.iter().map(pair).collect();
    }

    fn decide(&mut self, now: u64) -> Change {
        self.0.decide(ms(now), &self.1)
    }

    /// The epoch and chain of the shard as it should be.
    fn chain(&mut self, now: u64) -> (u64, Vec<u64>) {
        chain(&self.decide(now))
    }

    fn hand_overs(&mut self, now: u64) -> Vec<HandOver> {
        self.decide(now).hand_overs
    }

    /// The shards that are lost; each keeps its chain.
    fn unrecoverable(&mut self, now: u64) -> Vec<ShardRef> {
        let change = self.decide(now);
        assert_eq!(chain(&change).0, 5);
        change.unrecoverable
    }
}

fn chain(change: &Change) -> (u64, Vec<u64>) {
    let route = change.routing.route(ARRAY, 0).unwrap();
    (route.epoch.0, route.chain.iter().map(|node| node.0).collect())
}

#[test]
fn suspected_head_leaves_in_one_change() {
    let mut leading = Leading::new(&[1, 2], &[1, 2]);
    assert_eq!(leading.chain(0), (5, vec![1, 2]), "nothing to do");
    leading.suspect(&[(2, 1)]);
    let change = leading.decide(1);
    assert_eq!((chain(&change), change.routing.version()), ((6, vec![2]), 10));
    // A suspicion that is not held any longer does not count.
    leading.suspect(&[]);
    assert_eq!(leading.chain(2), (5, vec![1, 2]));
}

#[test]
fn server_that_is_cut_off_is_not_believed() {
    let mut leading = Leading::new(&[1, 2, 3], &[1, 2]);
    leading.1.arrays.clear();
    // Alone against all others, before they have noticed, and after.
    leading.suspect(&[(2, 1), (2, 3)]);
    assert_eq!(leading.chain(0), (5, vec![1, 2]));
    leading.suspect(&[(2, 1), (2, 3), (1, 2)]);
    assert_eq!(leading.chain(1), (6, vec![1]));
    // Two that suspect each other: one goes, and stays gone while both say so.
    leading.1.servers.remove(&NodeId(3));
    for (now, pairs) in [(2, &[(1, 2)][..]), (3, &[(1, 2), (2, 1)])] {
        leading.suspect(pairs);
        assert_eq!(leading.chain(now), (6, vec![1]));
    }
}

/// A dead server is listed until its lease ends. When one more dies meanwhile, the survivor
/// suspects all others, as one that is cut off would; but none of those claims to be alive.
#[test]
fn lone_survivor_is_believed_when_no_other_contradicts_it() {
    let mut leading = Leading::new(&[1, 2, 3], &[3, 2]);
    leading.1.arrays.clear();
    leading.suspect(&[(2, 1)]);
    leading.decide(0);
    leading.suspect(&[(2, 1), (2, 3)]);
    assert_eq!(leading.chain(1_000), (5, vec![3, 2]));
    assert_eq!(leading.0.next_timer(), Some(ms(1_300)));
    assert_eq!(leading.chain(1_299), (5, vec![3, 2]));
    assert_eq!(leading.chain(1_300), (6, vec![2]));
    assert_eq!(leading.0.next_timer(), None);
    // A new leader knows nothing of all this, and takes as long.
    let mut new = Leading(Coordinator::new(config()), leading.1.clone());
    assert_eq!(new.chain(0), (5, vec![3, 2]));
    assert_eq!(new.chain(300), (6, vec![2]));
    // Were it cut off, the others would say so by then.
    leading.suspect(&[(2, 1), (2, 3), (1, 2), (3, 2)]);
    assert_eq!(leading.chain(1_301), (6, vec![3]));
}

#[test]
fn workers_are_believed_together() {
    let mut leading = Leading::new(&[1, 2], &[1, 2]);
    leading.1.present_workers = [WorkerId(7), WorkerId(8)].into();
    leading.1.suspicions.insert((worker(7), NodeId(1)));
    assert_eq!(leading.chain(0), (5, vec![1, 2]));
    leading.1.suspicions.insert((worker(8), NodeId(1)));
    assert_eq!(leading.chain(1), (6, vec![2]));
}

#[test]
fn last_server_of_a_shard_stays_and_the_shard_is_named() {
    let mut leading = Leading::new(&[1, 2, 3], &[1, 2]);
    leading.suspect(&[(3, 2)]);
    leading.1.servers.remove(&NodeId(1));
    assert_eq!(leading.chain(0), (5, vec![1, 2]), "1 may be dead, and 2 alive");
    assert_eq!(leading.unrecoverable(1_000), [], "2 may be behind a slow link");
    leading.1.servers.remove(&NodeId(2));
    assert_eq!(leading.unrecoverable(1_001), [at(5)]);
    leading.1.servers.insert(NodeId(1), 1);
    assert_eq!(leading.chain(1_500), (6, vec![1]), "1 has come back");
}

#[test]
fn proposal_ends_the_standstill_in_any_case() {
    let mut leading = Leading::new(&[1, 2, 3], &[1]);
    leading.1.proposals = [to(3, 5)].into();
    assert_eq!(leading.chain(0), (6, vec![1, 3]));
    // The newcomer died meanwhile.
    leading.suspect(&[(2, 3)]);
    assert_eq!(leading.chain(1), (6, vec![1]));
    // A proposal of an earlier epoch is over.
    leading.1.proposals = [to(2, 4)].into();
    assert_eq!(leading.chain(2).0, 5);
}

#[test]
fn array_is_born_when_there_are_enough_servers() {
    let coordinator = |min_servers| {
        let birth = ms(500);
        Coordinator::new(CoordinatorConfig { min_servers, birth, ..config() })
    };
    let mut leading = Leading(coordinator(2), ClusterState::default());
    leading.1.arrays = [(ARRAY, RANGE.cut(3).collect())].into();
    assert!(leading.decide(0).routing.routes().is_empty());
    leading.1.servers.insert(NodeId(1), 1);
    assert!(leading.decide(0).routing.routes().is_empty());
    leading.1.servers.insert(NodeId(2), 1);
    let born = leading.decide(0).routing;
    let is_new = |route: &Route| route.epoch == Epoch(1) && route.chain.len() == 2;
    assert!(born.routes().len() == 3 && born.routes().iter().all(is_new));
    // Its servers may not have heard of the first epoch yet, so that it lasts for a while.
    leading.1.routing = born.clone();
    leading.1.arrays.insert(ARRAY, RANGE.cut(5).collect());
    assert_eq!(leading.decide(10).routing, born);
    assert_eq!(leading.0.next_timer(), Some(ms(510)));
    assert_ne!(leading.decide(510).routing, born);
    // But not for the dead.
    leading.suspect(&[(1, 2)]);
    leading.0 = coordinator(1);
    let survived = leading.decide(10).routing;
    assert!(survived.routes().iter().all(|route| route.chain == nodes(&[1])));
}

#[test]
fn server_without_the_state_leaves_the_chain() {
    let mut leading = Leading::new(&[1, 2], &[1, 2]);
    leading.1.lost = [(NodeId(2), at(5)), (NodeId(1), at(4))].into();
    assert_eq!(leading.chain(0), (6, vec![1]));
    leading.1.lost.insert((NodeId(1), at(5)));
    assert_eq!(leading.unrecoverable(0), [at(5)]);
}

#[test]
fn array_that_was_given_up_leaves_the_table() {
    let mut leading = Leading::new(&[1, 2], &[1, 2]);
    let other = ArrayId(3);
    leading.1.arrays.insert(other, RANGE.cut(1).collect());
    leading.1.routing = leading.decide(0).routing;
    let before = leading.1.routing.clone();
    assert!(before.route(other, 0).is_some());
    leading.1.arrays.insert(ARRAY, RANGE.cut(0).collect());
    let one = leading.decide(1).routing;
    assert!(one.version() > before.version());
    assert!(one.route(ARRAY, 0).is_none() && one.route(other, 0).is_some());
    leading.1.routing = one.clone();
    assert_eq!(leading.decide(2).routing, one, "it does not come back");
}

#[test]
fn hand_overs_that_do_not_end_are_given_up_later_and_later() {
    let mut leading = Leading::new(&[1, 2], &[1]);
    let asked = leading.decide(0);
    assert_eq!((asked.hand_overs, chain(&leading.decide(0)).0), (vec![to(2, 5)], 5));
    leading.1.hand_overs = vec![to(2, 5)];
    let mut now = 0;
    for (epoch, patience) in [(5, 10_000), (6, 20_000), (7, 40_000)] {
        assert_eq!(leading.chain(now + patience - 1).0, epoch);
        now += patience;
        assert_eq!(leading.0.next_timer(), Some(ms(now)));
        let renewed = leading.decide(now);
        assert_eq!(chain(&renewed), (epoch + 1, vec![1]), "under the same chain");
        assert_eq!(renewed.hand_overs, [], "the old one is over");
        leading.1.routing = renewed.routing;
        leading.1.hand_overs.clear();
        leading.1.hand_overs = leading.hand_overs(now);
        assert_eq!(leading.1.hand_overs, [to(2, epoch + 1)]);
    }
}

#[test]
fn hand_over_ends_at_once_when_its_receiver_is_gone_or_not_wanted() {
    let mut leading = Leading::new(&[1, 2, 3], &[1]);
    leading.1.hand_overs = leading.hand_overs(0);
    let receiver = leading.1.hand_overs[0].to;
    let mut dead = leading.clone();
    dead.suspect(&[(1, receiver.0)]);
    assert_eq!(dead.chain(1), (6, vec![1]));
    let mut emptied = leading.clone();
    emptied.1.servers.insert(receiver, 0);
    assert_eq!(emptied.chain(1), (6, vec![1]));
    assert_eq!(leading.chain(1), (5, vec![1]));
}

#[test]
fn no_more_shards_are_copied_at_a_time_than_allowed() {
    let mut leading = Leading::new(&[1, 2], &[1]);
    let route = |start| Route::new(shard(start, start + 1, 5), nodes(&[1]));
    leading.1.routing = table(9, (0..10).map(route));
    leading.1.arrays = [(ARRAY, RANGE.cut(10).collect())].into();
    assert_eq!(leading.hand_overs(0).len(), 4);
}

/// The suspicion of a dead server ends when its lease does, and then it is dead still.
#[test]
fn server_that_the_registry_misses_is_given_nothing() {
    let mut leading = Leading::new(&[1, 2, 3], &[1, 2]);
    leading.suspect(&[(2, 1)]);
    let dead = leading.decide(0);
    assert_eq!(chain(&dead), (6, vec![2]));
    (leading.1.routing, leading.1.hand_overs) = (dead.routing, dead.hand_overs);
    leading.suspect(&[]);
    leading.1.servers.remove(&NodeId(1));
    assert_eq!(leading.hand_overs(1), [to(3, 6)]);
    assert_eq!(leading.hand_overs(900), [to(3, 6)]);
    // A server that is missed but still in the table keeps its place and gets no further one.
    leading.1.servers = [(NodeId(2), 1)].into();
    let [low, high] = [shard(0, 5, 5), shard(5, 10, 5)];
    let routes = [(low, &[2][..]), (high, &[2, 3])];
    let routes = routes.map(|(at, chain)| Route::new(at, nodes(chain)));
    leading.1.routing = table(20, routes);
    leading.1.hand_overs.clear();
    leading.1.arrays = [(ARRAY, RANGE.cut(2).collect())].into();
    let missed = leading.decide(950);
    assert_eq!((missed.hand_overs, missed.routing), (vec![], leading.1.routing.clone()));
    leading.1.servers.insert(NodeId(3), 1);
    let (at, to) = (low, NodeId(3));
    assert_eq!(leading.hand_overs(960), [HandOver { at, to }]);
}

/// The only server that has found another one dead may die itself before that one's lease ends:
/// then no believed server says so any longer.
#[test]
fn server_that_a_dead_one_has_found_dead_is_given_nothing() {
    let mut dead = Leading::new(&[1, 2, 3], &[3]);
    dead.suspect(&[(2, 1), (3, 2)]);
    for now in [0, 1_000] {
        assert_eq!(dead.hand_overs(now), []);
        assert_eq!(dead.chain(now), (5, vec![3]));
    }
    // A newcomer takes its place at once.
    dead.1.servers.insert(NodeId(4), 1);
    assert_eq!(dead.hand_overs(1_001), [to(4, 5)]);
    // A server that holds shards keeps its part, whatever a server that is not believed says of it.
    let mut accused = Leading::new(&[1, 2, 3], &[1, 2]);
    accused.suspect(&[(3, 1), (1, 3), (2, 3)]);
    assert_eq!((accused.chain(0), accused.hand_overs(0)), ((5, vec![1, 2]), vec![]));
}

#[test]
fn registry_may_miss_servers_for_a_while() {
    let mut leading = Leading::new(&[2], &[1, 2]);
    assert_eq!(leading.chain(100).0, 5);
    assert_eq!(leading.0.next_timer(), Some(ms(1_100)));
    assert_eq!(leading.chain(1_099).0, 5);
    assert_eq!(leading.chain(1_100), (6, vec![2]));
    // One that came back in time starts anew.
    leading.0 = Coordinator::new(config());
    leading.decide(0);
    leading.1.servers.insert(NodeId(1), 1);
    leading.decide(900);
    leading.1.servers.remove(&NodeId(1));
    assert_eq!(leading.chain(1_500).0, 5);
}

/// 2 has died, and 4, which is cut off, says that 3 has.
#[test]
fn shard_is_not_left_to_a_server_that_the_registry_misses() {
    let mut leading = Leading::new(&[3, 4, 5], &[3, 2]);
    leading.suspect(&[(4, 3)]);
    for now in [0, 999] {
        assert_eq!(leading.chain(now), (5, vec![3, 2]), "at {now} ms");
    }
    assert_eq!(leading.chain(1_000), (5, vec![3, 2]), "none can be believed alive");
    leading.1.suspicions.clear();
    assert_eq!(leading.chain(1_200), (6, vec![3]));
}

/// A decision may be overtaken, or end a hand-over of the shard first.
#[test]
fn server_missed_for_too_long_does_not_come_back_by_itself() {
    let mut leading = Leading::new(&[1, 3], &[1, 2]);
    assert_eq!(leading.chain(0), (5, vec![1, 2]));
    for later in [1_000, 1_001, 1_500] {
        assert_eq!(leading.chain(later), (6, vec![1]), "at {later} ms");
    }
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
        let placement = Placement { points: 8, replicas };
        let coordinator = Coordinator::new(CoordinatorConfig { placement, ..config() });
        let mut leading = Leading(coordinator, ClusterState::default());
        let live = servers.values().filter(|&&weight| weight > 0).count();
        leading.1.servers = servers;
        leading.1.arrays = [(ARRAY, KeyRange::new(0, 60).cut(shards).collect())].into();
        leading.1.routing = leading.decide(0).routing;
        leading.suspect(&suspicions.iter().copied().collect::<Vec<_>>());
        for round in 0u64.. {
            prop_assert!(round < 200, "no end: {:?}", leading.1);
            let change = leading.decide(round);
            let before = (&leading.1.routing, &leading.1.hand_overs);
            if (&change.routing, &change.hand_overs) == before && leading.1.proposals.is_empty() {
                prop_assert!(change.hand_overs.is_empty());
                break;
            }
            for route in change.routing.routes() {
                let old = leading.1.routing.route(ARRAY, route.range.start).unwrap();
                prop_assert!(route == old || route.epoch == old.epoch.next());
                prop_assert!(!route.chain.is_empty());
            }
            leading.1.proposals = change.hand_overs.iter().copied().collect();
            leading.1.routing = change.routing;
            leading.1.hand_overs = change.hand_overs;
        }
        if suspicions.is_empty() && live > 0 {
            for route in leading.1.routing.routes() {
                prop_assert_eq!(route.chain.len(), replicas.min(live));
            }
        }
    }
}
