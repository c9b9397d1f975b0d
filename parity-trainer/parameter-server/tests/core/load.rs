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
    (config, ClusterState { servers, arrays, ..ClusterState::default() })
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

/// A plan was to save a sixth, and steps take as long as before it; or half as long again.
#[test]
fn plan_is_taken_back_when_it_is_bad_by_more_than_chance() {
    for (row_us, first, last) in [(11_900, 3_200, 9_000), (17_500, 1_000, 2_000)] {
        let (config, mut cluster) = twenty_shards(1_000);
        let mut leader = Coordinator::new(config);
        settle(&mut leader, &mut cluster, 0..100);
        let least = (1..=4).min_by_key(|&node| held(&cluster, node)).unwrap();
        assert_eq!(held(&cluster, least), 4, "of 20");
        cluster.services = (1..=4).map(|node| (NodeId(node), row_ns(10_000_000))).collect();
        let planned = (100..9_000).find(|&now| {
            settle(&mut leader, &mut cluster, now..now + 1);
            cluster.plan.moved > 0
        });
        let planned = planned.unwrap();
        cluster.services.insert(NodeId(least), row_ns(row_us * 1000));
        let taken_back = (planned + 1..20_000).find(|&now| {
            settle(&mut leader, &mut cluster, now..now + 1);
            cluster.plan.taken_back
        });
        let waited = taken_back.unwrap() - planned;
        assert!((first..last).contains(&waited), "{row_us}: {waited} ms");
    }
}

/// The first server seems to be slow by what it is told of, whatever it holds.
#[test]
fn plan_that_saves_nothing_is_taken_back_and_the_next_one_waits_longer() {
    let (config, mut cluster) = twenty_shards(1_000);
    let mut leader = Coordinator::new(config);
    cluster.routing = leader.decide(ms(0), &cluster).routing;
    let ring = cluster.routing.clone();
    let mut plans = Vec::new();
    for now in 1..40_000 {
        // Of two slow ones, it is always the one with the shards that takes long.
        let times = (1..=4).map(|node| {
            let rows = held(&cluster, node).max(1) as u64 * 2;
            let row_ns = if node == 1 { 40_000_000 } else { 20_000_000 } / rows;
            (NodeId(node), ServiceTime { push_ns: row_ns, read_ns: row_ns })
        });
        cluster.services = times.collect();
        let before = cluster.plan.clone();
        settle(&mut leader, &mut cluster, now..now + 1);
        if cluster.plan != before {
            plans.push((now, cluster.plan.chains.is_empty()));
        }
    }
    let (tried, taken_back): (Vec<_>, Vec<(u64, bool)>) =
        plans.iter().copied().partition(|(_, is_ring)| !is_ring);
    assert!(tried.len() >= 3 && tried.len() == taken_back.len(), "{plans:?}");
    let waits = Vec::from_iter(tried.windows(2).map(|pair| pair[1].0 - pair[0].0));
    assert!(waits[0] > 2_500 && waits[1] > waits[0] + 1_500, "{waits:?}");
    assert!(plans.len() < 14, "{plans:?}");
    let chains = |routing: &Routing| {
        Vec::from_iter(routing.routes().iter().map(|route| route.chain.clone()))
    };
    assert_eq!(chains(&cluster.routing), chains(&ring));
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
                let row_ns = match node {
                    _ if node == slower && is_planned => 3_000_000_000,
                    1 => 30_000_000,
                    _ => 10_000_000,
                };
                (NodeId(node), ServiceTime { push_ns: row_ns, read_ns: row_ns })
            });
            cluster.services = times.collect();
            settle(&mut leader, &mut cluster, now..now + 1);
            assert!(!cluster.plan.taken_back, "{slower} at {now} ms: it would be slow, too");
        }
        assert_eq!(held(&cluster, slower), 0);
    }
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

/// Of 5, 4, 4 and 4 shards, the one that tries it is missed where a step takes longest.
#[test]
fn standby_that_is_tried_stays_whatever_the_others_take() {
    let (config, mut cluster) = twenty_shards(1_000);
    cluster.arrays = [(ARRAY, KeyRange::new(0, 17).cut(17).collect())].into();
    cluster.servers.insert(NodeId(5), 1);
    cluster.standbys.insert(NodeId(5));
    cluster.services = (1..=4).map(|node| (NodeId(node), row_ns(10_000_000))).collect();
    let mut leader = Coordinator::new(config);
    let taken_in = (0..10_000).find(|&now| {
        settle(&mut leader, &mut cluster, now..now + 1);
        held(&cluster, 5) == 1
    });
    let now = taken_in.unwrap() + 1;
    assert!((1..=4).all(|node| held(&cluster, node) == 4));
    cluster.services.values_mut().for_each(|time| *time = row_ns(12_500_000));
    settle(&mut leader, &mut cluster, now..now + 8_000);
    assert_eq!((held(&cluster, 5), cluster.plan.taken_back), (1, false));
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
