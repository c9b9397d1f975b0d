//! PS-7: a number that is not finite never enters the store, nor does it stop a shard.

use crate::support::*;

fn alone(rule: impl UpdateRule + 'static, model: Consistency) -> Node {
    let array = array(Layout::dense(1, rule), model);
    Node::holding(array, 1, &[1], ServerConfig::default())
}

/// The pushes that these messages refuse: worker, clock and reason.
fn refused(messages: Vec<(Peer, Message)>) -> Vec<(Peer, u64, Refusal)> {
    let one = |(to, message)| match message {
        Message::Answer(Answer {
            request: Request::Push { clock, .. },
            refusal: Some(reason),
            ..
        }) => (to, clock.0, reason),
        other => panic!("{other:?}"),
    };
    messages.into_iter().map(one).collect()
}

fn overflow(id: u64, clock: u64, key: Key) -> (Peer, u64, Refusal) {
    (worker(id), clock, Refusal::Overflow { key })
}

/// A finite gradient whose square, or whose product with what follows from it, is not.
fn overflow_is_refused(rule: impl UpdateRule + 'static) {
    let mut head = alone(rule, Consistency::Eventual);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    let before = head.rows();
    let answers = head.hear(worker(0), push_of(1, 0, 2, [1.0, 2e19]));
    assert_eq!(refused(answers), [overflow(0, 2, 1)]);
    assert_eq!(head.rows(), before);
    // The clock has not gone on, so that the worker may send a smaller one.
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    assert_ne!(head.rows(), before);
}

#[test]
fn update_whose_square_overflows_is_refused_and_changes_nothing() {
    overflow_is_refused(FTRL);
    overflow_is_refused(Adam { beta2: 0.0, ..Adam::default() });
}

#[test]
fn bsp_sum_that_overflows_is_refused_for_each_worker_and_its_clock_can_be_pushed_again() {
    let mut head = alone(Add, Consistency::Bsp);
    assert_eq!(head.hear(worker(0), push_of(1, 0, 1, [2e38, 1.0])), []);
    let answers = head.hear(worker(1), push_of(1, 1, 1, [2e38, 1.0]));
    assert_eq!(refused(answers), [overflow(0, 1, 0), overflow(1, 1, 0)]);
    assert_eq!(head.values(), [0.0, 0.0]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), []);
    assert_eq!(head.hear(worker(1), push(1, 1, 1)), [ack(1, 0, 1), ack(1, 1, 1)]);
    assert_eq!(head.values(), [2.0, 4.0]);
}

#[test]
fn bsp_sum_of_named_rows_that_overflows_is_refused_for_each_worker() {
    let mut head = alone(Add, Consistency::Bsp);
    let push = |worker| {
        let values = Values::from(vec![-2e38]);
        Message::Push(push_rows(at(1), worker, 1, list([1]), values))
    };
    assert_eq!(head.hear(worker(0), push(0)), []);
    let answers = head.hear(worker(1), push(1));
    assert_eq!(refused(answers), [overflow(0, 1, 1), overflow(1, 1, 1)]);
    assert_eq!(head.values(), [0.0, 0.0]);
}

/// The second push of a worker waits for those of the clock that is refused: it comes too early
/// now.
#[test]
fn later_push_of_a_refused_worker_is_to_be_sent_again() {
    let mut head = alone(Add, Consistency::Bsp);
    assert_eq!(head.hear(worker(0), push_of(1, 0, 1, [2e38, 1.0])), []);
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), []);
    let answers = head.hear(worker(1), push_of(1, 1, 1, [2e38, 1.0]));
    let expected = Clock(1);
    let too_early = (worker(0), 2, Refusal::Gap { expected });
    assert_eq!(refused(answers), [overflow(0, 1, 0), too_early, overflow(1, 1, 0)]);
    for clock in 1..=2 {
        assert_eq!(head.hear(worker(0), push(1, 0, clock)), []);
        let answers = head.hear(worker(1), push(1, 1, clock));
        assert_eq!(answers, [ack(1, 0, clock), ack(1, 1, clock)]);
    }
    assert_eq!(head.values(), [4.0, 8.0]);
}

#[test]
fn overflowing_update_is_not_sent_down_the_chain() {
    let mut head = Node::new(0, Consistency::Bsp, &[0, 1]);
    head.hear(worker(0), push_of(1, 0, 1, [2e38, 1.0]));
    let answers = head.hear(worker(1), push_of(1, 1, 1, [2e38, 1.0]));
    assert_eq!(refused(answers), [overflow(0, 1, 0), overflow(1, 1, 0)]);
    head.hear(worker(0), push(1, 0, 1));
    let sent = head.hear(worker(1), push(1, 1, 1));
    let [(to, Message::Replicate(entry))] = &sent[..] else { panic!("{sent:?}") };
    // The place in the log after the list of workers.
    assert_eq!((*to, entry.seq), (server(1), Seq(2)));
    assert_eq!(head.hear(server(1), replicated(1, 2)), [ack(1, 0, 1), ack(1, 1, 1)]);
}

#[test]
fn successor_that_cannot_make_an_update_asks_to_be_copied_to_anew() {
    let mut second = Node::new(1, Consistency::Eventual, &[0, 1]);
    second.hear(server(0), entry(1, [3e38, 1.0]));
    let (from, message) = (server(0), entry(2, [3e38, 1.0]));
    let told = second.tell(Event::Received { from, message });
    assert_eq!(told, [Action::Lost { at: at(1) }]);
    assert_eq!(second.values(), [3e38, 1.0]);
}

#[test]
fn shard_takes_pushes_again_when_a_newcomer_refuses_its_rows() {
    let mut tail = alone(Add, Consistency::Eventual);
    // The newcomer knows the array with another width.
    let wide = array(Layout::dense(2, Add), Consistency::Eventual);
    let mut newcomer = Node::holding(wide, 2, &[1], ServerConfig::default());
    let mut pieces = sent(tail.tell(hand_over(2)));
    let (to, piece) = pieces.remove(0);
    assert_eq!(to, server(2));
    let is_last = matches!(&piece, Message::Snapshot(Snapshot { end: Some(_), .. }));
    assert!(is_last, "the shard stands still");
    let message = newcomer.ask(server(1), piece);
    assert_eq!(refusal(&message), Some(Refusal::BadRows));
    let from = server(2);
    let told = tail.tell(Event::Received { from, message });
    let (to, reason) = (NodeId(2), Refusal::BadRows);
    assert_eq!(told, [Action::CopyRefused { at: at(1), to, reason }]);
    assert_eq!(tail.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    // Asked again in the same epoch, it does not stop for the same server.
    tail.tell(hand_over(2));
    assert_eq!(tail.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    // Another server is copied to.
    let third = sent(tail.tell(hand_over(3)));
    assert!(matches!(&third[..], [(to, Message::Snapshot(_))] if *to == server(3)), "{third:?}");
}

#[test]
fn shard_that_has_seen_an_overflow_is_still_handed_over() {
    let mut tail = alone(FTRL, Consistency::Eventual);
    tail.hear(worker(0), push_of(1, 0, 1, [1.0, 2e19]));
    let rule = array(Layout::dense(1, FTRL), Consistency::Eventual);
    let mut newcomer = Node::holding(rule, 2, &[1], ServerConfig::default());
    let (_, piece) = sent(tail.tell(hand_over(2))).remove(0);
    let answer = newcomer.ask(server(1), piece);
    assert_eq!(refusal(&answer), None);
    assert!(matches!(answer, Message::Answer(_)), "{answer:?}");
    assert!(tail.values().iter().all(|value| value.is_finite()));
}
