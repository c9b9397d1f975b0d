//! A server, message by message: what the simulation leaves to chance.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Add, ArrayConfig, Clock, Consistency, Epoch, Event, Keys, Layout, Message, NodeId,
    Operation, Peer, Pull, Refusal, Refused, Replicate, ReplicateAck, Request, RequestId, Routing,
    Seq, Server, ServerConfig, Values, WorkerId,
};
use support::{ARRAY, Node, RANGE, REGISTRY, ack, at, push, sent, server, worker};

#[test]
fn an_acknowledgement_waits_for_the_chain() {
    let mut head = Node::new(0, Consistency::Eventual, 1, &[0, 1]);
    let sent = head.hear(worker(0), push(1, 0, 1));
    // Place 1 is the list of workers.
    assert!(
        matches!(&sent[..], [(to, Message::Replicate(Replicate { seq: Seq(2),
            .. }))] if *to == server(1)),
        "{sent:?}"
    );
    assert_eq!(
        head.hear(worker(0), push(1, 0, 1)),
        [],
        "a resend is neither applied nor acknowledged"
    );
    let told = head.hear(
        server(1),
        Message::ReplicateAck(ReplicateAck {
            at: at(1),
            seq: Seq(2),
        }),
    );
    assert_eq!(told, [ack(1, 0, 1)]);
    assert_eq!(
        head.hear(worker(0), push(1, 0, 1)),
        [ack(1, 0, 1)],
        "a resend of what is safe is acknowledged"
    );
    assert_eq!(head.values(), [1.0, 2.0]);
}

#[test]
fn an_old_head_is_refused_by_its_successor_and_stops() {
    let mut old = Node::new(0, Consistency::Eventual, 1, &[0, 1]);
    let mut new = Node::new(1, Consistency::Eventual, 1, &[0, 1]);
    new.route(2, &[1]);
    let (_, entry) = old.hear(worker(0), push(1, 0, 1)).remove(0);
    let (to, refusal) = new.hear(server(0), entry).remove(0);
    let Message::Refused(Refused { reason, .. }) = &refusal else {
        panic!("{refusal:?}")
    };
    assert_eq!(
        (to, *reason),
        (server(0), Refusal::WrongEpoch { current: Epoch(2) })
    );
    old.hear(server(1), refusal);
    let (_, answer) = old.hear(worker(0), push(1, 0, 2)).remove(0);
    let Message::Refused(Refused { reason, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(reason, Refusal::WrongEpoch { current: Epoch(2) });
}

#[test]
fn a_promoted_head_knows_what_it_has_applied() {
    let mut second = Node::new(1, Consistency::Eventual, 1, &[0, 1]);
    let workers = vec![(WorkerId(0), Clock(0)), (WorkerId(1), Clock(0))];
    let operations = [
        Operation::Members {
            version: 1,
            workers,
        },
        Operation::Update {
            range: RANGE,
            clocks: vec![(WorkerId(0), Clock(1))],
            keys: Keys::All,
            values: Values::from(vec![1.0, 2.0]),
        },
    ];
    for (seq, operation) in (1..).map(Seq).zip(operations) {
        second.hear(
            server(0),
            Message::Replicate(Replicate {
                at: at(1),
                seq,
                operation,
            }),
        );
    }
    second.route(2, &[1]);
    assert_eq!(second.hear(worker(0), push(2, 0, 1)), [ack(2, 0, 1)]);
    assert_eq!(second.values(), [1.0, 2.0], "applied once");
}

#[test]
fn bsp_adds_up_before_it_replicates() {
    let mut head = Node::new(0, Consistency::Bsp, 1, &[0, 1]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), []);
    let sent = head.hear(worker(1), push(1, 1, 1));
    let [
        (
            _,
            Message::Replicate(Replicate {
                operation: Operation::Update { clocks, values, .. },
                ..
            }),
        ),
    ] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!(clocks, &[(WorkerId(0), Clock(1)), (WorkerId(1), Clock(1))]);
    assert_eq!(values, &Values::from(vec![2.0, 4.0]));
    let acked = head.hear(
        server(1),
        Message::ReplicateAck(ReplicateAck {
            at: at(1),
            seq: Seq(2),
        }),
    );
    assert_eq!(acked, [ack(1, 0, 1), ack(1, 1, 1)]);
}

/// Seed 226 of the simulation: a tail that was replaced before it heard of the workers
/// waited for none.
#[test]
fn a_tail_that_does_not_know_the_reader_does_not_answer_it() {
    let mut tail = Node::new(1, Consistency::Ssp(0), 1, &[0, 1]);
    let pull = Pull {
        at: at(1),
        worker: WorkerId(0),
        request: RequestId(1),
        clock: Clock(2),
        keys: Keys::All,
    };
    let refused = Refused {
        at: at(1),
        request: Request::Pull {
            request: RequestId(1),
        },
        reason: Refusal::UnknownWorker,
    };
    assert_eq!(
        tail.hear(worker(0), Message::Pull(pull)),
        [(worker(0), Message::Refused(refused))]
    );
}

#[test]
fn an_array_is_known_anew_while_no_shard_of_it_is_held() {
    let array = |width| ArrayConfig {
        layout: Layout::dense(width, Add),
        policy: Arc::new(Consistency::Eventual),
    };
    let mut node = Node(
        Server::new(NodeId(1), ServerConfig::default(), [(ARRAY, array(5))]),
        Duration::ZERO,
    );
    node.0.define(ARRAY, array(1));
    node.route(1, &[1]);
    node.0.define(ARRAY, array(5));
    assert_eq!(node.0.shards().next().unwrap().store.layout().width, 1);
    assert_eq!(node.values(), [0.0, 0.0]);
}

fn is_busy(answers: &[(Peer, Message)]) -> bool {
    matches!(
        answers,
        [(
            _,
            Message::Refused(Refused {
                reason: Refusal::Busy,
                ..
            })
        )]
    )
}

#[test]
fn a_log_that_is_long_in_bytes_takes_no_more() {
    let config = ServerConfig {
        max_bytes: 16,
        ..ServerConfig::default()
    };
    let mut head = Node::bounded(1, Consistency::Eventual, 1, &[1, 2], config);
    let worker = Peer::Worker(WorkerId(0));
    // Eight bytes each, after the list of workers.
    assert!(!is_busy(&head.hear(worker, push(1, 0, 1))));
    assert!(!is_busy(&head.hear(worker, push(1, 0, 2))));
    assert!(is_busy(&head.hear(worker, push(1, 0, 3))));
    let ack = Message::ReplicateAck(ReplicateAck {
        at: at(1),
        seq: Seq(3),
    });
    head.hear(Peer::Server(NodeId(2)), ack);
    assert!(!is_busy(&head.hear(worker, push(1, 0, 3))));
}

#[test]
fn a_worker_ahead_of_the_others_has_few_bytes_pending() {
    let config = ServerConfig {
        max_bytes: 16,
        ..ServerConfig::default()
    };
    let mut head = Node::bounded(1, Consistency::Bsp, 1, &[1], config);
    let (fast, slow) = (Peer::Worker(WorkerId(0)), Peer::Worker(WorkerId(1)));
    assert!(!is_busy(&head.hear(fast, push(1, 0, 1))));
    assert!(!is_busy(&head.hear(fast, push(1, 0, 2))));
    assert!(is_busy(&head.hear(fast, push(1, 0, 3))));
    // The one that all wait for is not held up by it.
    assert!(!is_busy(&head.hear(slow, push(1, 1, 1))));
    assert!(!is_busy(&head.hear(fast, push(1, 0, 3))));
}

#[test]
fn pieces_of_wide_rows_are_small() {
    let config = ServerConfig {
        copy_bytes: 7,
        ..ServerConfig::default()
    };
    let mut tail = Node::bounded(1, Consistency::Bsp, 1, &[1], config);
    let actions = tail.tell(Event::HandOver {
        at: at(1),
        to: NodeId(2),
    });
    let pieces: Vec<usize> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Send {
                message: Message::Snapshot(piece),
                ..
            } => Some(piece.rows.values.len()),
            _ => None,
        })
        .collect();
    assert_eq!(pieces, [1]);
}

/// Server 1 with two rows, which it copies one at a time, server 2, to which it does, and
/// the first piece.
fn copying() -> (Node, Node, Message) {
    let config = ServerConfig {
        copy_rows: 1,
        ..ServerConfig::default()
    };
    let mut source = Node::bounded(1, Consistency::Eventual, 1, &[1], config);
    let newcomer = Node::bounded(2, Consistency::Eventual, 1, &[1], config);
    source.hear(worker(0), push(1, 0, 1));
    let (to, first) = sent(source.tell(Event::HandOver {
        at: at(1),
        to: NodeId(2),
    }))
    .remove(0);
    assert_eq!(to, server(2));
    (source, newcomer, first)
}

/// Carries pieces and answers between the two until the newcomer has everything.
fn carry(source: &mut Node, newcomer: &mut Node, first: Message) {
    let mut pieces = vec![(server(2), first)];
    while let Some((_, piece)) = pieces.pop() {
        let answers = newcomer.hear(server(1), piece);
        pieces.extend(
            answers
                .into_iter()
                .flat_map(|(_, answer)| source.hear(server(2), answer)),
        );
    }
    assert_eq!(newcomer.copies(), [(at(1), true)]);
}

const FORGET: Duration = Duration::from_secs(31);

#[test]
fn a_copy_that_gets_no_further_is_dropped() {
    let (_, mut newcomer, first) = copying();
    newcomer.hear(server(1), first.clone());
    newcomer.wait(FORGET / 2);
    assert_eq!(newcomer.copies(), [(at(1), false)]);
    newcomer.wait(FORGET / 2);
    assert_eq!(newcomer.copies(), []);
    // The network had kept one back.
    newcomer.hear(server(1), first);
    assert_eq!(newcomer.copies(), [(at(1), false)]);
    newcomer.wait(FORGET);
    assert_eq!(newcomer.copies(), []);
}

#[test]
fn a_complete_copy_is_kept_until_its_array_ends() {
    let (mut source, mut newcomer, first) = copying();
    carry(&mut source, &mut newcomer, first);
    newcomer.wait(10 * FORGET);
    assert_eq!(newcomer.copies(), [(at(1), true)]);
    newcomer.hear(
        REGISTRY,
        Message::Routing(Routing::new(2, Vec::new()).unwrap()),
    );
    assert_eq!(newcomer.copies(), []);
}

#[test]
fn copy_goes_on_after_a_refusal_that_may_be_repeated() {
    let (mut source, mut newcomer, first) = copying();
    let Message::Snapshot(piece) = &first else {
        panic!("{first:?}")
    };
    let request = Request::Snapshot {
        transfer: piece.transfer,
        part: piece.part,
    };
    let refused = Refused {
        at: at(1),
        request,
        reason: Refusal::UnknownWorker,
    };
    assert_eq!(source.hear(server(2), Message::Refused(refused)), []);
    carry(&mut source, &mut newcomer, first);
}

#[test]
fn a_newcomer_that_has_dropped_its_part_is_copied_to_again() {
    let (mut source, mut newcomer, first) = copying();
    let (_, ack) = newcomer.hear(server(1), first).remove(0);
    let (_, last) = source.hear(server(2), ack).remove(0);
    source.tell(Event::Members {
        version: 2,
        workers: vec![(WorkerId(0), Clock(0))],
    });
    newcomer.wait(FORGET);
    let (_, refusal) = newcomer.hear(server(1), last.clone()).remove(0);
    let again = source.hear(server(2), refusal.clone()).remove(0).1;
    let parts = [&last, &again].map(|message| match message {
        Message::Snapshot(piece) => (piece.transfer.0, piece.part),
        other => panic!("{other:?}"),
    });
    assert_eq!(parts, [(1, 1), (2, 0)]);
    assert_eq!(
        source.hear(server(2), refusal),
        [],
        "said again, of what is over"
    );
    // It does not stand still meanwhile, and has taken note of what came while it did.
    assert_eq!(source.hear(worker(0), push(1, 0, 2)), [self::ack(1, 0, 2)]);
    let (_, answer) = source.hear(worker(1), push(1, 1, 1)).remove(0);
    assert!(matches!(
        answer,
        Message::Refused(Refused {
            reason: Refusal::UnknownWorker,
            ..
        })
    ));
    carry(&mut source, &mut newcomer, again);
    newcomer.route(2, &[1, 2]);
    assert_eq!(newcomer.values(), [2.0, 4.0]);
}
