//! A server, message by message: what the simulation leaves to chance.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Add, ArrayConfig, ArrayId, Clock, Consistency, Epoch, Event, KeyRange, Keys, Layout, Message,
    NodeId, Operation, Peer, Pull, Push, PushAck, Refusal, Refused, Replicate, ReplicateAck, Request,
    RequestId, Route, Routing, Rows, Seq, Server, ServerConfig, ShardRef, Snapshot, SnapshotEnd,
    SnapshotPhase, TransferId, Values, WorkerId,
};

const ARRAY: ArrayId = ArrayId(0);
const RANGE: KeyRange = KeyRange { start: 0, end: 2 };
const REGISTRY: Peer = Peer::Server(NodeId(99));

fn at(epoch: u64) -> ShardRef {
    ShardRef { array: ARRAY, range: RANGE, epoch: Epoch(epoch) }
}

fn push(epoch: u64, worker: u64, clock: u64) -> Message {
    Message::Push(Push {
        at: at(epoch),
        worker: WorkerId(worker),
        clock: Clock(clock),
        keys: Keys::All,
        values: Values::from(vec![1.0, 2.0]),
    })
}

/// A server, and its time.
struct Node(Server, Duration);

impl Node {
    /// A server that knows two workers and this chain.
    fn new(node: u64, model: Consistency, epoch: u64, chain: &[u64]) -> Self {
        Self::bounded(node, model, epoch, chain, ServerConfig::default())
    }

    fn bounded(node: u64, model: Consistency, epoch: u64, chain: &[u64], config: ServerConfig) -> Self {
        let array = ArrayConfig { layout: Layout::dense(1, Add), policy: Arc::new(model) };
        let mut server = Self(Server::new(NodeId(node), config, [(ARRAY, array)]), Duration::ZERO);
        let workers = vec![(WorkerId(0), Clock(0)), (WorkerId(1), Clock(0))];
        server.tell(Event::Members { version: 1, workers });
        server.route(epoch, chain);
        server
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.0.handle(self.1, event, &mut actions);
        actions
    }

    fn hear(&mut self, from: Peer, message: Message) -> Vec<(Peer, Message)> {
        sent(self.tell(Event::Received { from, message }))
    }

    /// Lets time pass, and its timer go off if it is due.
    fn wait(&mut self, time: Duration) {
        self.1 += time;
        if self.0.next_timer().is_some_and(|due| due <= self.1) {
            self.tell(Event::Tick);
        }
    }

    fn copies(&self) -> Vec<(ShardRef, bool)> {
        self.0.copies().collect()
    }

    fn route(&mut self, epoch: u64, chain: &[u64]) -> Vec<(Peer, Message)> {
        let chain = chain.iter().copied().map(NodeId).collect();
        let route = Route { array: ARRAY, range: RANGE, epoch: Epoch(epoch), chain };
        self.hear(REGISTRY, Message::Routing(Routing::new(epoch, vec![route]).unwrap()))
    }

    fn values(&self) -> Vec<f32> {
        let mut values = Vec::new();
        self.0.shards().next().unwrap().store.read(RANGE, &Keys::All, &mut values);
        values
    }
}

fn sent(actions: Vec<Action>) -> Vec<(Peer, Message)> {
    let sent = |action| match action {
        Action::Send { to, message } => Some((to, message)),
        _ => None,
    };
    actions.into_iter().filter_map(sent).collect()
}

fn worker(id: u64) -> Peer {
    Peer::Worker(WorkerId(id))
}

fn server(id: u64) -> Peer {
    Peer::Server(NodeId(id))
}

fn ack(epoch: u64, id: u64, clock: u64) -> (Peer, Message) {
    (worker(id), Message::PushAck(PushAck { at: at(epoch), worker: WorkerId(id), clock: Clock(clock) }))
}

#[test]
fn an_acknowledgement_waits_for_the_chain() {
    let mut head = Node::new(0, Consistency::Eventual, 1, &[0, 1]);
    let sent = head.hear(worker(0), push(1, 0, 1));
    // Place 1 is the list of workers.
    assert!(
        matches!(&sent[..], [(to, Message::Replicate(Replicate { seq: Seq(2), .. }))] if *to == server(1)),
        "{sent:?}"
    );
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), [], "a resend is neither applied nor acknowledged");
    let told = head.hear(server(1), Message::ReplicateAck(ReplicateAck { at: at(1), seq: Seq(2) }));
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
    let Message::Refused(Refused { reason, .. }) = &refusal else { panic!("{refusal:?}") };
    assert_eq!((to, *reason), (server(0), Refusal::WrongEpoch { current: Epoch(2) }));
    old.hear(server(1), refusal);
    let (_, answer) = old.hear(worker(0), push(1, 0, 2)).remove(0);
    let Message::Refused(Refused { reason, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(reason, Refusal::WrongEpoch { current: Epoch(2) });
}

#[test]
fn a_promoted_head_knows_what_it_has_applied() {
    let mut second = Node::new(1, Consistency::Eventual, 1, &[0, 1]);
    let workers = vec![(WorkerId(0), Clock(0)), (WorkerId(1), Clock(0))];
    let operations = [
        Operation::Members { version: 1, workers },
        Operation::Update {
            range: RANGE,
            clocks: vec![(WorkerId(0), Clock(1))],
            keys: Keys::All,
            values: Values::from(vec![1.0, 2.0]),
        },
    ];
    for (seq, operation) in (1..).map(Seq).zip(operations) {
        second.hear(server(0), Message::Replicate(Replicate { at: at(1), seq, operation }));
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
    let [(_, Message::Replicate(Replicate { operation: Operation::Update { clocks, values, .. }, .. }))] =
        &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!(clocks, &[(WorkerId(0), Clock(1)), (WorkerId(1), Clock(1))]);
    assert_eq!(values, &Values::from(vec![2.0, 4.0]));
    let acked = head.hear(server(1), Message::ReplicateAck(ReplicateAck { at: at(1), seq: Seq(2) }));
    assert_eq!(acked, [ack(1, 0, 1), ack(1, 1, 1)]);
}

/// Seed 226 of the simulation: a tail that was replaced before it heard of the workers waited for nobody.
#[test]
fn a_tail_that_does_not_know_the_reader_does_not_answer_it() {
    let mut tail = Node::new(1, Consistency::Ssp(0), 1, &[0, 1]);
    let pull =
        Pull { at: at(1), worker: WorkerId(0), request: RequestId(1), clock: Clock(2), keys: Keys::All };
    let refused = Refused {
        at: at(1),
        request: Request::Pull { request: RequestId(1) },
        reason: Refusal::UnknownWorker,
    };
    assert_eq!(tail.hear(worker(0), Message::Pull(pull)), [(worker(0), Message::Refused(refused))]);
}

#[test]
fn a_held_server_takes_pushes_up_to_a_clock() {
    let mut head = Node::new(1, Consistency::Eventual, 1, &[1]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    let arrays = BTreeSet::from([ARRAY]);
    assert_eq!(head.0.hold(&arrays, Some(Clock(2))), Clock(1));
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    let refused = head.hear(worker(0), push(1, 0, 3));
    let reasons: Vec<_> = refused
        .iter()
        .map(|(_, message)| match message {
            Message::Refused(refused) => refused.reason,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [Refusal::Stopped]);
    assert!(Refusal::Stopped.is_retryable());
    // A resend is acknowledged, the other worker may catch up.
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    assert_eq!(head.hear(worker(1), push(1, 1, 1)), [ack(1, 1, 1)]);
    assert_eq!(head.values(), [3.0, 6.0]);
    assert_eq!(head.0.hold(&arrays, None), Clock(2));
    assert_eq!(head.hear(worker(0), push(1, 0, 3)), [ack(1, 0, 3)]);
}

#[test]
fn other_arrays_go_on_while_one_is_held() {
    let mut head = Node::new(1, Consistency::Eventual, 1, &[1]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    let other = BTreeSet::from([ArrayId(5)]);
    assert_eq!(head.0.hold(&other, Some(Clock(0))), Clock(0), "the clocks of others do not count");
    assert_eq!(head.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    // To let one go leaves the others held.
    head.0.hold(&BTreeSet::from([ARRAY]), Some(Clock(2)));
    head.0.hold(&other, None);
    let refused = head.hear(worker(0), push(1, 0, 3));
    let stopped = |message: &Message| matches!(message, Message::Refused(r) if r.reason == Refusal::Stopped);
    assert!(refused.iter().all(|(_, message)| stopped(message)) && !refused.is_empty(), "{refused:?}");
}

/// A piece of a checkpoint, which the server reads itself.
fn restored(transfer: u64, epoch: u64, end: bool) -> Snapshot {
    let end = end.then(|| SnapshotEnd { seq: Seq(0), members: 0, clocks: Vec::new() });
    Snapshot {
        at: at(epoch),
        transfer: TransferId(transfer),
        part: 0,
        phase: SnapshotPhase::Delta,
        rows: Rows {
            range: RANGE,
            keys: Keys::All,
            values: Values::from(vec![3.0, 4.0]),
            state: Values::none(),
            steps: Vec::new(),
        },
        end,
    }
}

#[test]
fn what_was_restored_goes_when_the_restore_has_ended_without_it() {
    let array = ArrayConfig { layout: Layout::dense(1, Add), policy: Arc::new(Consistency::Eventual) };
    let mut node = Node(Server::new(NodeId(1), ServerConfig::default(), [(ARRAY, array)]), Duration::ZERO);
    let own = Peer::Server(NodeId(1));
    node.hear(own, Message::Snapshot(restored(7, 7, true)));
    node.0.drop_restored(Some(TransferId(7)));
    assert_eq!(node.copies(), [(at(7), true)], "it is still under way");
    node.0.drop_restored(None);
    assert_eq!(node.copies(), []);
    // Had it been committed, it would have been let in before.
    node.hear(own, Message::Snapshot(restored(8, 8, true)));
    node.route(9, &[1]);
    node.0.drop_restored(None);
    assert_eq!(node.values(), [3.0, 4.0]);
    // Another server's copy stays.
    let mut newcomer = Node::new(2, Consistency::Eventual, 1, &[1]);
    newcomer.hear(server(1), Message::Snapshot(restored(1, 1, false)));
    newcomer.0.drop_restored(None);
    assert_eq!(newcomer.copies(), [(at(1), false)]);
}

#[test]
fn an_array_is_known_anew_while_no_shard_of_it_is_held() {
    let array =
        |width| ArrayConfig { layout: Layout::dense(width, Add), policy: Arc::new(Consistency::Eventual) };
    // As a restore said that failed.
    let mut node = Node(Server::new(NodeId(1), ServerConfig::default(), [(ARRAY, array(5))]), Duration::ZERO);
    node.0.define(ARRAY, array(1));
    node.route(1, &[1]);
    node.0.define(ARRAY, array(5));
    assert_eq!(node.0.shards().next().unwrap().store.layout().width, 1);
    assert_eq!(node.values(), [0.0, 0.0]);
}

fn is_busy(answers: &[(Peer, Message)]) -> bool {
    matches!(answers, [(_, Message::Refused(Refused { reason: Refusal::Busy, .. }))])
}

#[test]
fn a_log_that_is_long_in_bytes_takes_no_more() {
    let config = ServerConfig { max_bytes: 16, ..ServerConfig::default() };
    let mut head = Node::bounded(1, Consistency::Eventual, 1, &[1, 2], config);
    let worker = Peer::Worker(WorkerId(0));
    // Eight bytes each, after the list of workers.
    assert!(!is_busy(&head.hear(worker, push(1, 0, 1))));
    assert!(!is_busy(&head.hear(worker, push(1, 0, 2))));
    assert!(is_busy(&head.hear(worker, push(1, 0, 3))));
    let ack = Message::ReplicateAck(ReplicateAck { at: at(1), seq: Seq(3) });
    head.hear(Peer::Server(NodeId(2)), ack);
    assert!(!is_busy(&head.hear(worker, push(1, 0, 3))));
}

#[test]
fn a_worker_ahead_of_the_others_has_few_bytes_pending() {
    let config = ServerConfig { max_bytes: 16, ..ServerConfig::default() };
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
    let config = ServerConfig { copy_bytes: 7, ..ServerConfig::default() };
    let mut tail = Node::bounded(1, Consistency::Bsp, 1, &[1], config);
    let actions = tail.tell(Event::HandOver { at: at(1), to: NodeId(2) });
    let pieces: Vec<usize> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Send { message: Message::Snapshot(piece), .. } => Some(piece.rows.values.len()),
            _ => None,
        })
        .collect();
    assert_eq!(pieces, [1]);
}

/// Server 1 with two rows, which it copies one at a time, server 2, to which it does, and the first piece.
fn copying() -> (Node, Node, Message) {
    let config = ServerConfig { copy_rows: 1, ..ServerConfig::default() };
    let mut source = Node::bounded(1, Consistency::Eventual, 1, &[1], config);
    let newcomer = Node::bounded(2, Consistency::Eventual, 1, &[1], config);
    source.hear(worker(0), push(1, 0, 1));
    let (to, first) = sent(source.tell(Event::HandOver { at: at(1), to: NodeId(2) })).remove(0);
    assert_eq!(to, server(2));
    (source, newcomer, first)
}

/// Carries pieces and answers between the two until the newcomer has everything.
fn carry(source: &mut Node, newcomer: &mut Node, first: Message) {
    let mut pieces = vec![(server(2), first)];
    while let Some((_, piece)) = pieces.pop() {
        let answers = newcomer.hear(server(1), piece);
        pieces.extend(answers.into_iter().flat_map(|(_, answer)| source.hear(server(2), answer)));
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
    newcomer.hear(REGISTRY, Message::Routing(Routing::new(2, Vec::new()).unwrap()));
    assert_eq!(newcomer.copies(), []);
}

#[test]
fn a_newcomer_that_has_dropped_its_part_is_copied_to_again() {
    let (mut source, mut newcomer, first) = copying();
    let (_, ack) = newcomer.hear(server(1), first).remove(0);
    let (_, last) = source.hear(server(2), ack).remove(0);
    source.tell(Event::Members { version: 2, workers: vec![(WorkerId(0), Clock(0))] });
    newcomer.wait(FORGET);
    let (_, refusal) = newcomer.hear(server(1), last.clone()).remove(0);
    let again = source.hear(server(2), refusal.clone()).remove(0).1;
    let parts = [&last, &again].map(|message| match message {
        Message::Snapshot(piece) => (piece.transfer.0, piece.part),
        other => panic!("{other:?}"),
    });
    assert_eq!(parts, [(1, 1), (2, 0)]);
    assert_eq!(source.hear(server(2), refusal), [], "said again, of what is over");
    // It does not stand still meanwhile, and has taken note of what came while it did.
    assert_eq!(source.hear(worker(0), push(1, 0, 2)), [self::ack(1, 0, 2)]);
    let (_, answer) = source.hear(worker(1), push(1, 1, 1)).remove(0);
    assert!(matches!(answer, Message::Refused(Refused { reason: Refusal::UnknownWorker, .. })));
    carry(&mut source, &mut newcomer, again);
    newcomer.route(2, &[1, 2]);
    assert_eq!(newcomer.values(), [2.0, 4.0]);
}
