//! Members that the registry misses, or whom a dead server has found dead.

use super::*;

/// The suspicion of a dead server ends when its lease does, and then it is dead still.
#[test]
fn what_the_registry_misses_is_given_nothing() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[1, 2]);
    suspect(&mut cluster, &[(2, 1)]);
    let dead = coordinator.decide(ms(0), &cluster);
    assert_eq!(chain(&dead), (6, vec![2]));
    (cluster.routing, cluster.hand_overs) = (dead.routing, dead.hand_overs);
    suspect(&mut cluster, &[]);
    cluster.servers.remove(&NodeId(1));
    let after = coordinator.decide(ms(1), &cluster);
    assert_eq!(
        after.hand_overs,
        [HandOver {
            at: at(6),
            to: NodeId(3)
        }]
    );
    assert_eq!(
        coordinator.decide(ms(900), &cluster).hand_overs,
        after.hand_overs
    );
    // A server that is missed but still in the table keeps its place and gets no further one.
    cluster.servers = [(NodeId(2), 1)].into();
    let route = |start, end, chain: &[u64]| Route {
        array: ARRAY,
        range: KeyRange::new(start, end),
        epoch: Epoch(5),
        chain: nodes(chain),
    };
    cluster.routing = Routing::new(20, vec![route(0, 5, &[2]), route(5, 10, &[2, 3])]).unwrap();
    cluster.hand_overs.clear();
    cluster.arrays = [(ARRAY, (RANGE, 2))].into();
    let missed = coordinator.decide(ms(950), &cluster);
    assert_eq!(
        (missed.hand_overs, &missed.routing),
        (vec![], &cluster.routing)
    );
    cluster.servers.insert(NodeId(3), 1);
    let to = NodeId(3);
    let back = coordinator.decide(ms(960), &cluster);
    assert_eq!(
        back.hand_overs
            .iter()
            .map(|hand_over| hand_over.to)
            .collect::<Vec<_>>(),
        [to]
    );
}

/// The only server that has found another one dead may die itself before that one's lease ends:
/// then no believed server says so any longer.
#[test]
fn whom_a_dead_server_has_found_dead_is_given_nothing() {
    let mut coordinator = Coordinator::new(config());
    let mut dead = cluster(&[1, 2, 3], &[3]);
    suspect(&mut dead, &[(2, 1), (3, 2)]);
    for now in [0, 1_000] {
        let change = coordinator.decide(ms(now), &dead);
        assert_eq!((chain(&change), change.hand_overs), ((5, vec![3]), vec![]));
    }
    // A newcomer takes its place at once.
    dead.servers.insert(NodeId(4), 1);
    let to = coordinator
        .decide(ms(1_001), &dead)
        .hand_overs
        .iter()
        .map(|h| h.to)
        .collect::<Vec<_>>();
    assert_eq!(to, nodes(&[4]));
    // A server that holds shards keeps its part, whatever a server that is not believed says of it.
    let mut accused = cluster(&[1, 2, 3], &[1, 2]);
    suspect(&mut accused, &[(3, 1), (1, 3), (2, 3)]);
    let change = Coordinator::new(config()).decide(ms(0), &accused);
    assert_eq!(
        (chain(&change), change.hand_overs),
        ((5, vec![1, 2]), vec![])
    );
}

#[test]
fn the_registry_may_miss_servers_and_workers_for_a_while() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[2], &[1, 2]);
    cluster.workers = [WorkerId(1)].into();
    let first = coordinator.decide(ms(100), &cluster);
    assert_eq!((chain(&first).0, &first.gone_workers[..]), (5, &[][..]));
    assert_eq!(coordinator.next_timer(), Some(ms(1_100)));
    assert_eq!(chain(&coordinator.decide(ms(1_099), &cluster)).0, 5);
    let then = coordinator.decide(ms(1_100), &cluster);
    assert_eq!(
        (chain(&then), &then.gone_workers[..]),
        ((6, vec![2]), &[WorkerId(1)][..])
    );
    // One that came back in time starts anew.
    let mut coordinator = Coordinator::new(config());
    coordinator.decide(ms(0), &cluster);
    cluster.servers.insert(NodeId(1), 1);
    coordinator.decide(ms(900), &cluster);
    cluster.servers.remove(&NodeId(1));
    assert_eq!(chain(&coordinator.decide(ms(1_500), &cluster)).0, 5);
}

/// 2 has died, and 4, which is cut off, says that 3 has.
#[test]
fn a_shard_is_not_left_to_whom_the_registry_misses() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[3, 4, 5], &[3, 2]);
    suspect(&mut cluster, &[(4, 3)]);
    for now in [0, 999] {
        assert_eq!(
            chain(&coordinator.decide(ms(now), &cluster)),
            (5, vec![3, 2]),
            "at {now} ms"
        );
    }
    assert_eq!(
        coordinator.decide(ms(1_000), &cluster).unrecoverable,
        [at(5)],
        "nobody can be believed alive"
    );
    cluster.suspicions.clear();
    assert_eq!(
        chain(&coordinator.decide(ms(1_200), &cluster)),
        (6, vec![3])
    );
}

/// A decision may be overtaken, or end a hand-over of the shard first.
#[test]
fn whom_the_registry_has_missed_for_too_long_does_not_come_back_by_itself() {
    let mut coordinator = Coordinator::new(config());
    let cluster = cluster(&[1, 3], &[1, 2]);
    assert_eq!(chain(&coordinator.decide(ms(0), &cluster)), (5, vec![1, 2]));
    for later in [1_000, 1_001, 1_500] {
        assert_eq!(
            chain(&coordinator.decide(ms(later), &cluster)),
            (6, vec![1]),
            "at {later} ms"
        );
    }
}
