//! PS-7: a number that is not finite never enters the store, nor does it stop a shard.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_parameter_server::{
    Action, AdaGrad, Adam, Add, Clock, Consistency, Event, Ftrl, Keys, Layout, Message, NodeId,
    Operation, Peer, Push, Refusal, Refused, Replicate, ReplicateAck, Request, Seq, ServerConfig,
    Snapshot, UpdateRule, Values, WorkerId,
};
use support::{Node, RANGE, ack, at, push, push_of, sent, server, worker};

fn alone(rule: impl UpdateRule + 'static, model: Consistency) -> Node {
    Node::holding(
        Layout::dense(1, rule),
        1,
        model,
        1,
        &[1],
        ServerConfig::default(),
    )
}

/// The pushes that these messages refuse, and the reasons.
fn refused(messages: &[(Peer, Message)]) -> Vec<(Peer, u64, Refusal)> {
    let one = |(to, message): &(Peer, Message)| match message {
        Message::Refused(Refused {
            request: Request::Push { clock, .. },
            reason,
            ..
        }) => Some((*to, clock.0, *reason)),
        _ => None,
    };
    messages.iter().filter_map(one).collect()
}

/// A finite gradient whose square, or whose product with what follows from it, is not.
fn overflow_is_refused(rule: impl UpdateRule + 'static) {
    let mut head = alone(rule, Consistency::Eventual);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    let before = head.rows();
    let answers = head.hear(worker(0), push_of(1, 0, 2, vec![1.0, 2e19]));
    assert_eq!(
        refused(&answers),
        [(worker(0), 2, Refusal::Overflow { key: 1 })]
    );
    assert_eq!(head.rows(), before);
    // The clock has not gone on, so that the worker may send a smaller one.
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    assert_ne!(head.rows(), before);
}

#[test]
fn ftrl_update_that_overflows_is_refused_and_changes_nothing() {
    overflow_is_refused(Ftrl {
        alpha: 0.1,
        beta: 1.0,
        l1: 0.5,
        l2: 0.3,
    });
}

#[test]
fn adagrad_update_whose_square_overflows_is_refused_and_changes_nothing() {
    overflow_is_refused(AdaGrad {
        rate: 0.1,
        epsilon: 1e-3,
    });
}

#[test]
fn adam_update_whose_square_overflows_is_refused_and_changes_nothing() {
    overflow_is_refused(Adam {
        beta2: 0.0,
        ..Adam::default()
    });
}

#[test]
fn bsp_sum_that_overflows_is_refused_for_each_worker_and_its_clock_can_be_pushed_again() {
    let mut head = alone(Add, Consistency::Bsp);
    assert_eq!(head.hear(worker(0), push_of(1, 0, 1, vec![2e38, 1.0])), []);
    let answers = head.hear(worker(1), push_of(1, 1, 1, vec![2e38, 1.0]));
    assert_eq!(
        refused(&answers),
        [
            (worker(0), 1, Refusal::Overflow { key: 0 }),
            (worker(1), 1, Refusal::Overflow { key: 0 })
        ]
    );
    assert_eq!(head.values(), [0.0, 0.0]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), []);
    assert_eq!(
        head.hear(worker(1), push(1, 1, 1)),
        [ack(1, 0, 1), ack(1, 1, 1)]
    );
    assert_eq!(head.values(), [2.0, 4.0]);
}

#[test]
fn bsp_sum_of_named_rows_that_overflows_is_refused_for_each_worker() {
    let mut head = alone(Add, Consistency::Bsp);
    let push = |worker: u64| {
        let (keys, values) = (Keys::List(vec![1].into()), Values::from(vec![-2e38]));
        let (worker, clock) = (WorkerId(worker), Clock(1));
        Message::Push(Push {
            at: at(1),
            worker,
            clock,
            keys,
            values,
        })
    };
    assert_eq!(head.hear(worker(0), push(0)), []);
    let answers = head.hear(worker(1), push(1));
    assert_eq!(
        refused(&answers),
        [
            (worker(0), 1, Refusal::Overflow { key: 1 }),
            (worker(1), 1, Refusal::Overflow { key: 1 })
        ]
    );
    assert_eq!(head.values(), [0.0, 0.0]);
}

/// The second push of a worker waits for those of the clock that is refused: it comes
/// too early now.
#[test]
fn later_push_of_a_refused_worker_is_to_be_sent_again() {
    let mut head = alone(Add, Consistency::Bsp);
    assert_eq!(head.hear(worker(0), push_of(1, 0, 1, vec![2e38, 1.0])), []);
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), []);
    let answers = head.hear(worker(1), push_of(1, 1, 1, vec![2e38, 1.0]));
    let expected = [
        (worker(0), 1, Refusal::Overflow { key: 0 }),
        (worker(0), 2, Refusal::Gap { expected: Clock(1) }),
        (worker(1), 1, Refusal::Overflow { key: 0 }),
    ];
    assert_eq!(refused(&answers), expected);
    for clock in 1..=2 {
        assert_eq!(head.hear(worker(0), push(1, 0, clock)), []);
        assert_eq!(
            head.hear(worker(1), push(1, 1, clock)),
            [ack(1, 0, clock), ack(1, 1, clock)]
        );
    }
    assert_eq!(head.values(), [4.0, 8.0]);
}

#[test]
fn overflowing_update_is_not_sent_down_the_chain() {
    let layout = Layout::dense(1, Add);
    let mut head = Node::holding(
        layout,
        0,
        Consistency::Bsp,
        1,
        &[0, 1],
        ServerConfig::default(),
    );
    head.hear(worker(0), push_of(1, 0, 1, vec![2e38, 1.0]));
    let answers = head.hear(worker(1), push_of(1, 1, 1, vec![2e38, 1.0]));
    assert!(
        answers.iter().all(|(to, _)| matches!(to, Peer::Worker(_))),
        "{answers:?}"
    );
    head.hear(worker(0), push(1, 0, 1));
    let sent = head.hear(worker(1), push(1, 1, 1));
    let [(to, Message::Replicate(entry))] = &sent[..] else {
        panic!("{sent:?}")
    };
    // The place in the log after the list of workers.
    assert_eq!((*to, entry.seq), (server(1), Seq(2)));
    let acknowledged = Message::ReplicateAck(ReplicateAck {
        at: at(1),
        seq: Seq(2),
    });
    assert_eq!(
        head.hear(server(1), acknowledged),
        [ack(1, 0, 1), ack(1, 1, 1)]
    );
}

#[test]
fn successor_that_cannot_make_an_update_asks_to_be_copied_to_anew() {
    let layout = Layout::dense(1, Add);
    let mut second = Node::holding(
        layout,
        1,
        Consistency::Eventual,
        1,
        &[0, 1],
        ServerConfig::default(),
    );
    let replicate = |seq: u64, operation: Operation| Event::Received {
        from: server(0),
        message: Message::Replicate(Replicate {
            at: at(1),
            seq: Seq(seq),
            operation,
        }),
    };
    let update = |values: Vec<f32>| Operation::Update {
        range: RANGE,
        clocks: vec![(WorkerId(0), Clock(1))],
        keys: Keys::All,
        values: Values::from(values),
    };
    second.tell(replicate(1, update(vec![3e38, 1.0])));
    let told = second.tell(replicate(2, update(vec![3e38, 1.0])));
    assert_eq!(told, [Action::Lost { at: at(1) }]);
    assert_eq!(second.values(), [3e38, 1.0]);
}

/// The tail of a shard, and the first piece that it copies to a server that knows the array
/// with another width.
fn copying_to_another_layout() -> (Node, Node, Message) {
    let mut tail = alone(Add, Consistency::Eventual);
    let layout = Layout::dense(2, Add);
    let (model, config) = (Consistency::Eventual, ServerConfig::default());
    let newcomer = Node::holding(layout, 2, model, 1, &[1], config);
    let (to, piece) = sent(tail.tell(Event::HandOver {
        at: at(1),
        to: NodeId(2),
    }))
    .remove(0);
    assert_eq!(to, server(2));
    (tail, newcomer, piece)
}

#[test]
fn shard_takes_pushes_again_when_a_newcomer_refuses_its_rows() {
    let (mut tail, mut newcomer, piece) = copying_to_another_layout();
    assert!(
        matches!(&piece, Message::Snapshot(Snapshot { end: Some(_), .. })),
        "the shard stands still"
    );
    let (_, answer) = newcomer.hear(server(1), piece).remove(0);
    let Message::Refused(Refused {
        reason: Refusal::BadRows,
        ..
    }) = answer
    else {
        panic!("{answer:?}")
    };
    let told = tail.tell(Event::Received {
        from: server(2),
        message: answer,
    });
    let expected = Action::CopyRefused {
        at: at(1),
        to: NodeId(2),
        reason: Refusal::BadRows,
    };
    assert_eq!(told, [expected]);
    assert_eq!(tail.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    // Asked again in the same epoch, it does not stop for the same server.
    tail.tell(Event::HandOver {
        at: at(1),
        to: NodeId(2),
    });
    assert_eq!(tail.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    // Another server is copied to.
    let third = sent(tail.tell(Event::HandOver {
        at: at(1),
        to: NodeId(3),
    }));
    assert!(
        matches!(&third[..], [(to, Message::Snapshot(_))] if *to == server(3)),
        "{third:?}"
    );
}

#[test]
fn shard_that_has_seen_an_overflow_is_still_handed_over() {
    let mut tail = alone(
        Ftrl {
            alpha: 0.1,
            beta: 1.0,
            l1: 0.5,
            l2: 0.3,
        },
        Consistency::Eventual,
    );
    tail.hear(worker(0), push_of(1, 0, 1, vec![1.0, 2e19]));
    let rule = Ftrl {
        alpha: 0.1,
        beta: 1.0,
        l1: 0.5,
        l2: 0.3,
    };
    let (model, config) = (Consistency::Eventual, ServerConfig::default());
    let mut newcomer = Node::holding(Layout::dense(1, rule), 2, model, 1, &[1], config);
    let (_, piece) = sent(tail.tell(Event::HandOver {
        at: at(1),
        to: NodeId(2),
    }))
    .remove(0);
    let answers = newcomer.hear(server(1), piece);
    assert!(
        matches!(&answers[..], [(_, Message::SnapshotAck(_))]),
        "{answers:?}"
    );
    assert!(
        tail.rows()
            .values
            .to_f32()
            .iter()
            .all(|value| value.is_finite()),
        "{RANGE}"
    );
}
