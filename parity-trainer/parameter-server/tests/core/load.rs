//! Decisions of a leader by the load of servers: moves of shards, and standbys.

use std::ops::Range;

use crate::coordinator::config;
use crate::support::*;

fn row_ns(row_ns: u64) -> ServiceTime {
    ServiceTime { push_ns: row_ns, read_ns: row_ns }
}

/// Twenty shards on four servers, without replicas; load is looked at every so many milliseconds.
fn twenty_shards(replan: u64) -> (CoordinatorConfig, ClusterState) {
    let placement = Placement { replicas: 1, ..Placement::default() };
    let config = CoordinatorConfig { placement, replan: Some(ms(replan)), ..config() };
    let arrays = [(ARRAY, KeyRange::new(0, 20).cut(20).collect())].into();
    let servers = (1..=4).map(|node| (NodeId(node), 1)).collect();
    let steps = Some(took(800));
    (config, ClusterState { servers, arrays, steps, ..ClusterState::default() })
}

/// Steps that took a second before the last plan, and so many milliseconds under it.
fn took(ms: u64) -> StepTimes {
    let times = |ms| Vec::from_iter((0..100).map(|i| Duration::from_micros(1000 * ms + i)));
    StepTimes::compare(&times(1000), &times(ms))
}

/// Does what the leader decides in each of these milliseconds.
fn settle(leader: &mut Coordinator, cluster: &mut ClusterState, times: Range<u64>) {
    for now in times {
        let change = leader.decide(ms(now), cluster);
        cluster.proposals = change.hand_overs.iter().copied().collect();
        (cluster.routing, cluster.plan) = (change.routing, change.plan);
        cluster.hand_overs = change.hand_overs;
    }
}

fn held(cluster: &ClusterState, node: u64) -> usize {
    let routes = cluster.routing.routes().iter();
    routes.filter(|route| route.chain == [NodeId(node)]).count()
}

/// The first server comes to take eight times as long.
#[test]
fn shard_leaves_a_slow_server_once_it_is_known_and_stays_away_under_a_new_leader() {
    let (config, mut cluster) = twenty_shards(5_000);
    let mut leader = Coordinator::new(config);
    cluster.routing = leader.decide(ms(0), &cluster).routing;
    assert!(held(&cluster, 1) >= 3);
    cluster.services = (1..=4).map(|node| (NodeId(node), row_ns(10_000_000))).collect();
    settle(&mut leader, &mut cluster, 1..101);
    assert_eq!(cluster.plan, LoadPlan::default(), "nothing before the time is up");
    cluster.services.insert(NodeId(1), row_ns(80_000_000));
    settle(&mut leader, &mut cluster, 5_001..5_101);
    assert_eq!(held(&cluster, 1), 0, "{:?}", cluster.routing);
    let plan = cluster.plan.clone();
    assert!(plan.moved > 0 && plan.before_us > 2 * plan.after_us, "{plan:?}");
    // One that is to leave shards where hashing puts them takes them back there.
    let mut other = Coordinator::new(CoordinatorConfig { replan: None, ..config });
    let mut back = cluster.clone();
    settle(&mut other, &mut back, 20_000..20_100);
    assert!(held(&back, 1) >= 3);
    // A new leader goes on with it, until the server is as fast as the others, or one joins.
    let mut leader = Coordinator::new(config);
    settle(&mut leader, &mut cluster, 20_000..20_100);
    assert_eq!((held(&cluster, 1), &cluster.plan), (0, &plan));
    cluster.services.insert(NodeId(1), row_ns(10_000_000));
    for (now, shards) in [(30_000, 1), (36_000, 3), (58_000, 5)] {
        settle(&mut leader, &mut cluster, now..now + 100);
        assert_eq!(held(&cluster, 1), shards, "no more than it may have shown");
    }
    cluster.servers.insert(NodeId(5), 1);
    settle(&mut leader, &mut cluster, 80_000..80_100);
    assert_eq!(held(&cluster, 5), 1, "to try it");
    cluster.services.insert(NodeId(5), row_ns(10_000_000));
    settle(&mut leader, &mut cluster, 92_000..92_100);
    settle(&mut leader, &mut cluster, 104_000..104_100);
    assert_eq!(held(&cluster, 5), 4);
    // One that leaves is emptied as ever.
    cluster.servers.insert(NodeId(2), 0);
    settle(&mut leader, &mut cluster, 110_000..110_100);
    assert_eq!(held(&cluster, 2), 0);
}

/// Of 7, 7 and 6 shards, one server with 7 takes an eighth longer than the others.
#[test]
fn smaller_gains_are_worth_moves_when_servers_have_stood_still_for_longer() {
    let (config, mut cluster) = twenty_shards(1_000);
    let time = |row_us: u64| ServiceTime { push_ns: row_us * 1000, read_ns: row_us * 1000 };
    cluster.services = (1..=4).map(|node| (NodeId(node), time(10_000))).collect();
    cluster.services.insert(NodeId(1), time(80_000));
    let mut leader = Coordinator::new(config);
    settle(&mut leader, &mut cluster, 0..4_000);
    let most = (1..=4).max_by_key(|&node| held(&cluster, node)).unwrap();
    assert_eq!((held(&cluster, 1), held(&cluster, most)), (0, 7));
    cluster.services.insert(NodeId(most), time(11_250));
    let mut leader = Coordinator::new(config);
    settle(&mut leader, &mut cluster, 10_000..15_000);
    assert_eq!(held(&cluster, most), 7, "servers may differ by chance");
    settle(&mut leader, &mut cluster, 15_000..19_000);
    assert_eq!(held(&cluster, most), 6);
}

/// By the times that are told, always the server with most shards is slow.
fn slow_where_most_shards_are(cluster: &mut ClusterState) {
    let most = (1..=4).max_by_key(|&node| held(cluster, node)).unwrap();
    let time = |node| if node == most { 40_000_000 } else { 10_000_000 };
    cluster.services = (1..=4).map(|node| (NodeId(node), row_ns(time(node)))).collect();
}

/// The milliseconds at which plans were made and taken back.
fn plans(cluster: &mut ClusterState, leader: &mut Coordinator, times: Range<u64>) -> [Vec<u64>; 2] {
    let mut plans = [vec![], vec![]];
    for now in times {
        slow_where_most_shards_are(cluster);
        let before = cluster.plan.clone();
        settle(leader, cluster, now..now + 1);
        if cluster.plan != before {
            plans[usize::from(cluster.plan.taken_back)].push(now);
        }
    }
    plans
}

#[test]
fn plan_is_taken_back_if_steps_are_longer_and_the_next_one_waits_longer() {
    let (config, mut cluster) = twenty_shards(1_000);
    let mut leader = Coordinator::new(config);
    cluster.routing = leader.decide(ms(0), &cluster).routing;
    let ring = cluster.routing.clone();
    cluster.steps = Some(took(1_100));
    let [made, taken_back] = plans(&mut cluster, &mut leader, 1..60_000);
    assert!((3..5).contains(&made.len()) && made.len() == taken_back.len(), "{made:?}");
    let gaps = |times: &[u64]| Vec::from_iter(times.windows(2).map(|pair| pair[1] - pair[0]));
    assert!(gaps(&made).is_sorted_by(|gap, next| 2 * gap < *next), "{made:?}");
    assert!(made.iter().zip(&taken_back).all(|(made, back)| back - made < 2_000));
    let chains = |routing: &Routing| {
        Vec::from_iter(routing.routes().iter().map(|route| route.chain.clone()))
    };
    assert_eq!(chains(&cluster.routing), chains(&ring));
}

/// A fiftieth more or less is neither shorter nor longer.
#[test]
fn plan_under_which_steps_are_as_long_stays_and_the_next_one_waits_longer() {
    let gaps = [None, Some(took(1_020)), Some(took(990)), Some(took(900))].map(|steps| {
        let (config, mut cluster) = twenty_shards(1_000);
        let mut leader = Coordinator::new(config);
        cluster.steps = steps;
        let [made, taken_back] = plans(&mut cluster, &mut leader, 0..30_000);
        assert!(made.len() > 2 && taken_back.is_empty(), "{made:?}");
        [made[1] - made[0], made[2] - made[1]].map(|gap| gap / 1_000)
    });
    assert_eq!(gaps, [[1, 4], [1, 4], [1, 4], [1, 1]], "seconds");
}

/// The slow server, or another one, of which the plan before had less.
#[test]
fn plan_is_not_taken_back_when_a_server_gets_slower() {
    for slower in [1, 2] {
        let (config, mut cluster) = twenty_shards(1_000);
        let mut leader = Coordinator::new(config);
        cluster.routing = leader.decide(ms(0), &cluster).routing;
        for now in 1..12_000 {
            let is_planned = !cluster.plan.chains.is_empty();
            let times = (1..=4).map(|node| {
                let time = match node {
                    _ if node == slower && is_planned => 3_000_000_000,
                    1 => 30_000_000,
                    _ => 10_000_000,
                };
                (NodeId(node), row_ns(time))
            });
            cluster.services = times.collect();
            cluster.steps = (is_planned && held(&cluster, slower) > 0).then(|| took(9_000));
            settle(&mut leader, &mut cluster, now..now + 1);
            assert!(!cluster.plan.taken_back, "{slower} at {now} ms: it would be slow, too");
        }
        assert_eq!(held(&cluster, slower), 0);
    }
}

#[test]
fn steps_are_compared_by_their_ranks() {
    let times = |all: &[u64]| Vec::from_iter(all.iter().copied().map(Duration::from_micros));
    let compare = |one: &[u64], other: &[u64]| StepTimes::compare(&times(one), &times(other));
    // U is 1 of 12; of chance it would be 6 with a deviation of sqrt(8).
    let found = compare(&[5, 7, 9], &[8, 20, 30, 10]);
    assert_eq!((found.before_us, found.after_us, found.rank), (7, 20, 176));
    assert_eq!(compare(&[8, 20, 30, 10], &[5, 7, 9]).rank, -176);
    assert_eq!(compare(&[4; 40], &[4; 40]).rank, 0);
}

#[test]
fn standby_is_taken_in_for_load_and_let_go_where_it_saves_nothing() {
    let (config, mut cluster) = twenty_shards(100);
    cluster.servers.insert(NodeId(5), 1);
    cluster.standbys.insert(NodeId(5));
    let mut leader = Coordinator::new(config);
    settle(&mut leader, &mut cluster, 0..150);
    assert_eq!(held(&cluster, 5), 0, "nothing is known of the load");
    cluster.services = (1..=4).map(|node| (NodeId(node), row_ns(10_000))).collect();
    settle(&mut leader, &mut cluster, 200..1_000);
    assert_eq!(held(&cluster, 5), 0, "a step of 0.1 ms is short enough");
    cluster.services.values_mut().for_each(|time| *time = row_ns(10_000_000));
    settle(&mut leader, &mut cluster, 1_000..2_000);
    assert_eq!(held(&cluster, 5), 1, "to try it");
    cluster.services.insert(NodeId(5), row_ns(10_000_000));
    settle(&mut leader, &mut cluster, 2_000..3_000);
    assert_eq!(held(&cluster, 5), 4);
    // A hundred times as slow as the others.
    cluster.services.insert(NodeId(5), row_ns(1_000_000_000));
    settle(&mut leader, &mut cluster, 3_000..4_000);
    assert_eq!((held(&cluster, 5), &cluster.plan.standbys), (0, &BTreeSet::new()));
    cluster.services.remove(&NodeId(5));
    settle(&mut leader, &mut cluster, 4_000..15_000);
    assert_eq!(held(&cluster, 5), 0, "not again and again");
    settle(&mut leader, &mut cluster, 15_000..17_000);
    assert_eq!(held(&cluster, 5), 1);
}

#[test]
fn standby_stands_in_where_there_are_too_few_servers() {
    let (mut config, mut cluster) = twenty_shards(1_000);
    config.placement.replicas = 4;
    cluster.servers.extend([(NodeId(5), 1), (NodeId(6), 1)]);
    cluster.standbys.extend([NodeId(5), NodeId(6)]);
    let mut leader = Coordinator::new(config);
    let names = |cluster: &ClusterState, node| {
        let mut routes = cluster.routing.routes().iter();
        routes.any(|route| route.chain.contains(&NodeId(node)))
    };
    settle(&mut leader, &mut cluster, 0..1_000);
    assert!(!names(&cluster, 5) && !names(&cluster, 6));
    cluster.servers.insert(NodeId(1), 0);
    settle(&mut leader, &mut cluster, 1_000..3_000);
    assert!(names(&cluster, 5) && !names(&cluster, 1) && !names(&cluster, 6));
    cluster.servers.insert(NodeId(1), 1);
    settle(&mut leader, &mut cluster, 3_000..6_000);
    assert!(names(&cluster, 1) && !names(&cluster, 5));
}

#[test]
fn head_that_is_to_be_the_tail_goes_there_and_no_other_server_gets_a_copy() {
    let (mut config, mut cluster) = twenty_shards(1_000);
    config.placement.replicas = 2;
    let mut leader = Coordinator::new(config);
    settle(&mut leader, &mut cluster, 0..1_000);
    let route = cluster.routing.routes()[0].clone();
    let mut chain = route.chain.clone();
    chain.reverse();
    cluster.plan.chains.push((route.array, route.range, chain.clone()));
    let change = leader.decide(ms(1_000), &cluster);
    assert_eq!(change.hand_overs, [HandOver { at: route.at(), to: chain[1] }]);
    settle(&mut leader, &mut cluster, 1_000..1_100);
    assert_eq!(cluster.routing.routes()[0].chain, chain);
    assert_eq!(cluster.routing.routes()[0].epoch, route.epoch.next());
}
