//! Copies of shards that do not end.

use super::*;

#[test]
fn hand_overs_that_do_not_end_are_given_up_later_and_later() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2], &[1]);
    let asked = coordinator.decide(ms(0), &cluster);
    let to = NodeId(2);
    assert_eq!(asked.hand_overs, [HandOver { at: at(5), to }]);
    assert_eq!(chain(&asked).0, 5);
    cluster.hand_overs = asked.hand_overs;
    let mut now = ms(0);
    for (epoch, patience) in [(5, 10_000), (6, 20_000), (7, 40_000)] {
        assert_eq!(
            chain(&coordinator.decide(now + ms(patience - 1), &cluster)).0,
            epoch
        );
        assert_eq!(coordinator.next_timer(), Some(now + ms(patience)));
        now += ms(patience);
        let renewed = coordinator.decide(now, &cluster);
        assert_eq!(
            chain(&renewed),
            (epoch + 1, vec![1]),
            "under the same chain"
        );
        assert_eq!(renewed.hand_overs, [], "the old one is over");
        cluster.routing = renewed.routing;
        cluster.hand_overs.clear();
        cluster.hand_overs = coordinator.decide(now, &cluster).hand_overs;
        assert_eq!(
            cluster.hand_overs,
            [HandOver {
                at: at(epoch + 1),
                to
            }]
        );
    }
}

#[test]
fn a_hand_over_ends_at_once_when_its_receiver_is_gone_or_not_wanted() {
    let mut coordinator = Coordinator::new(config());
    let mut cluster = cluster(&[1, 2, 3], &[1]);
    let to = coordinator.decide(ms(0), &cluster).hand_overs[0].to;
    cluster.hand_overs = vec![HandOver { at: at(5), to }];
    let mut dead = cluster.clone();
    suspect(&mut dead, &[(1, to.0)]);
    assert_eq!(
        chain(&coordinator.clone().decide(ms(1), &dead)),
        (6, vec![1])
    );
    let mut emptied = cluster.clone();
    emptied.servers.insert(to, 0);
    assert_eq!(
        chain(&coordinator.clone().decide(ms(1), &emptied)),
        (6, vec![1])
    );
    assert_eq!(chain(&coordinator.decide(ms(1), &cluster)), (5, vec![1]));
}
