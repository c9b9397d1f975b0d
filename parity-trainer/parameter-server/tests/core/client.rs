//! A client, message by message.

use crate::support::*;

/// A worker with an array of rows of one number, which knows one shard on server 0.
struct Harness(Client);

impl Harness {
    fn new(max_pulls: usize, consistency: Consistency) -> Self {
        let config = ClientConfig { max_pulls, ..ClientConfig::default() };
        let array = ClientArray { width: 1, consistency };
        let mut harness = Self(Client::new(WorkerId(0), config, [(ARRAY, array)]));
        harness.hear(0, routing(1, &[0, 4]));
        harness
    }

    fn tell(&mut self, at: u64, event: ClientEvent) -> Vec<ClientAction> {
        let mut actions = Vec::new();
        self.0.handle(ms(at), event, &mut actions);
        actions
    }

    fn hear(&mut self, at: u64, message: Message) -> Vec<ClientAction> {
        self.tell(at, ClientEvent::Received(message))
    }

    fn try_submit(&mut self, task: Task) -> Result<(Handle, Vec<Message>), SubmitError> {
        let mut actions = Vec::new();
        let handle = self.0.submit(ms(0), task, &mut actions)?;
        Ok((handle, messages(actions)))
    }

    fn submit(&mut self, work: Work, clock: u64) -> (Handle, Vec<Message>) {
        self.try_submit(task(work, clock)).unwrap()
    }

    /// The clocks of the pushes that are sent once the ways to servers take so much.
    fn clocks_with(&mut self, rooms: &[(u64, usize)]) -> Vec<u64> {
        let rooms = rooms.iter().map(|&(node, room)| (NodeId(node), room));
        clocks(messages(self.tell(0, ClientEvent::SendRoom(rooms.collect()))))
    }
}

fn task(work: Work, clock: u64) -> Task {
    Task { work, array: ARRAY, range: KeyRange::new(0, 4), keys: Keys::All, clock: Clock(clock) }
}

/// Shards between these keys, each on one server.
fn routing(version: u64, borders: &[u64]) -> Message {
    let route = |pair: &[u64]| Route::new(shard(pair[0], pair[1], version), nodes(&pair[..1]));
    Message::Routing(table(version, borders.windows(2).map(route)))
}

fn messages(actions: Vec<ClientAction>) -> Vec<Message> {
    let sent = |action| match action {
        ClientAction::Send { message, .. } => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(sent).collect()
}

fn clocks(sent: Vec<Message>) -> Vec<u64> {
    let clock = |message| match message {
        Message::Push(push) => push.clock.0,
        other => panic!("{other:?}"),
    };
    sent.into_iter().map(clock).collect()
}

fn rows() -> Work {
    Work::Push(Values::from(vec![0.0, 1.0, 2.0, 3.0]))
}

fn reply(at: ShardRef, request: Option<RequestId>, clock: u64, own: u64, row: f32) -> Message {
    let rows = usize::try_from(at.range.len()).unwrap();
    Message::PullReply(PullReply {
        at,
        request,
        clock: Clock(clock),
        own: Clock(own),
        held_us: 0,
        keys: Keys::All,
        values: vec![row; rows].into(),
    })
}

fn request_of(message: &Message) -> RequestId {
    match message {
        Message::Pull(pull) => pull.request,
        other => panic!("{other:?}"),
    }
}

fn done(handle: Handle, outcome: TaskOutcome) -> [ClientAction; 1] {
    [ClientAction::Done { handle, outcome }]
}

#[test]
fn split_cuts_what_was_not_acknowledged() {
    let mut client = Harness::new(256, Consistency::Eventual);
    let (handle, sent) = client.submit(rows(), 1);
    assert_eq!(sent.len(), 1);
    let parts = messages(client.hear(1, routing(2, &[0, 1, 4])));
    let push = |at, values: &[f32]| {
        let values = values.to_vec().into();
        Message::Push(push_rows(at, 0, 1, Keys::All, values))
    };
    let [first, second] = [shard(0, 1, 2), shard(1, 4, 2)];
    assert_eq!(parts, [push(first, &[0.0]), push(second, &[1.0, 2.0, 3.0])]);
    assert_eq!(client.hear(2, push_ack(first, 9, 1)), [], "of another worker");
    assert_eq!(client.hear(2, push_ack(first, 0, 1)), []);
    let ended = client.hear(3, push_ack(second, 0, 1));
    assert_eq!(ended, done(handle, Ok(None)));
}

#[test]
fn pulled_parts_are_put_together_with_the_clocks_of_all() {
    let mut client = Harness::new(256, Consistency::Eventual);
    client.hear(1, routing(2, &[0, 1, 4]));
    let (handle, sent) = client.submit(PULL, 7);
    let [low, high] = [request_of(&sent[0]), request_of(&sent[1])];
    assert_eq!(client.hear(1, reply(shard(1, 4, 2), Some(high), 5, 4, 2.0)), []);
    let ended = client.hear(1, reply(shard(0, 1, 2), Some(low), 3, 6, 1.0));
    let pulled = Pulled {
        clock: Clock(3),
        newest: Clock(5),
        own: Clock(4),
        values: vec![1.0, 2.0, 2.0, 2.0].into(),
        updates: Vec::new(),
        served: vec![served(0, 0, [(0, 0), (1, 1)]), served(1, 0, [(0, 0), (3, 1)])],
    };
    assert_eq!(ended, done(handle, Ok(Some(pulled))));
}

/// Rows pushed and read, with the milliseconds that they took.
fn served(node: u64, logged: u64, [pushed, read]: [(u64, u64); 2]) -> ServedBy {
    let rows = |(count, took)| RowTimes { count, took: ms(took) };
    ServedBy { node: NodeId(node), pushed: rows(pushed), logged, read: rows(read) }
}

/// Executors push in each step, and one of them pulls; another one may from some step on.
#[test]
fn work_of_steps_without_a_pull_is_not_counted_with_the_first_pull() {
    let mut client = Harness::new(256, Consistency::Eventual);
    for clock in 1..=5 {
        client.submit(rows(), clock);
        client.hear(clock, push_ack(shard(0, 4, 1), 0, clock));
    }
    let (_, sent) = client.submit(PULL, 6);
    let ended = client.hear(9, reply(shard(0, 4, 1), Some(request_of(&sent[0])), 5, 5, 1.0));
    let [ClientAction::Done { outcome: Ok(Some(pulled)), .. }] = &ended[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(
        pulled.served,
        [served(0, 0, [(4, 5), (4, 4)])],
        "the last step's push and the pull"
    );
}

/// A head that waits for its follower is not slow: the follower is, by what is heard of most of its
/// shards.
#[test]
fn time_of_a_log_entry_counts_for_those_that_follow() {
    let mut client = Harness::new(256, Consistency::Eventual);
    let shards = [shard(0, 1, 2), shard(1, 2, 2), shard(2, 4, 2)];
    let chains = [[0, 1], [2, 1], [3, 1]].iter().map(|chain| nodes(chain));
    let routes = shards.into_iter().zip(chains).map(|(at, chain)| Route::new(at, chain));
    client.hear(0, Message::Routing(table(2, routes)));
    client.submit(rows(), 1);
    for (at, copied_us) in shards.into_iter().zip([20_000, 1_000, 30_000]) {
        let request = Request::Push { worker: WorkerId(0), clock: Clock(1) };
        let answer = Answer { at, request, held_us: 31_000, copied_us, refusal: None };
        client.hear(33, Message::Answer(answer));
    }
    let (_, sent) = client.submit(PULL, 2);
    let ended = sent.iter().flat_map(|part| {
        let at = match part {
            Message::Pull(pull) => pull.at,
            other => panic!("{other:?}"),
        };
        client.hear(33, reply(at, Some(request_of(part)), 1, 1, 1.0))
    });
    let [ClientAction::Done { outcome: Ok(Some(pulled)), .. }] = &Vec::from_iter(ended)[..] else {
        panic!("the pull is not done");
    };
    // Its part of the pull took 33 ms since time 0.
    let follower = served(1, 4, [(0, 0), (4 + 4, 20 + 33)]);
    let heads = [(0, 1), (2, 1), (3, 2)].map(|(node, rows)| served(node, 0, [(rows, 2), (0, 0)]));
    assert_eq!(pulled.served, [&heads[..1], &[follower], &heads[1..]].concat());
}

#[test]
fn part_is_sent_again_when_its_server_has_usually_answered_and_ever_more_rarely() {
    let mut client = Harness::new(256, Consistency::Eventual);
    let (_, first) = client.submit(rows(), 1);
    assert_eq!(client.tell(99, ClientEvent::Tick), []);
    for at in [100, 300, 700, 1_500, 3_100, 4_700] {
        assert_eq!(client.0.next_timer(), Some(ms(at)));
        assert_eq!(messages(client.tell(at, ClientEvent::Tick)), first);
    }
    let mut client = Harness::new(256, Consistency::Eventual);
    client.submit(rows(), 1);
    client.hear(400, push_ack(shard(0, 4, 1), 0, 1));
    client.submit(rows(), 2);
    assert_eq!(client.0.next_timer(), Some(ms(800)), "answers take 400 ms");
    let request = Request::Push { worker: WorkerId(0), clock: Clock(2) };
    let at = shard(0, 4, 1);
    let held = Answer { at, request, held_us: 590_000, copied_us: 0, refusal: None };
    client.hear(600, Message::Answer(held));
    client.submit(rows(), 3);
    assert_eq!(client.0.next_timer(), Some(ms(775)), "what it waited for does not count");
}

#[test]
fn parts_on_a_lost_connection_are_sent_again() {
    let mut client = Harness::new(256, Consistency::Eventual);
    let (_, sent) = client.submit(rows(), 1);
    assert_eq!(client.tell(1, ClientEvent::Disconnected(NodeId(7))), []);
    assert_eq!(messages(client.tell(1, ClientEvent::Disconnected(NodeId(0)))), sent);
}

#[test]
fn refused_part_waits_for_a_table_or_a_while_or_fails() {
    let refused = |reason, clock| {
        let (worker, clock) = (WorkerId(0), Clock(clock));
        let request = Request::Push { worker, clock };
        answer(shard(0, 4, 1), request, Some(reason))
    };
    let mut client = Harness::new(256, Consistency::Eventual);
    let (first, sent) = client.submit(rows(), 1);
    assert_eq!(client.hear(5, refused(Refusal::Busy, 2)), [], "of another clock");
    assert_eq!(client.hear(5, refused(Refusal::Busy, 1)), []);
    assert_eq!(client.0.next_timer(), Some(ms(55)));
    assert_eq!(messages(client.tell(55, ClientEvent::Tick)), sent);
    assert_eq!(client.hear(60, refused(Refusal::NotHead, 1)), []);
    // An answer to another push may be what it waited for.
    client.submit(rows(), 2);
    let again = client.hear(61, push_ack(shard(0, 4, 1), 0, 5));
    assert_eq!(clocks(messages(again)), [1, 2]);
    let overflow = Refusal::Overflow { key: 3 };
    let ended = client.hear(62, refused(overflow, 1));
    assert_eq!(ended, done(first, Err(overflow)));
    assert_eq!(client.0.unfinished(), 1);
}

#[test]
fn tasks_that_do_not_fit_or_are_too_many_are_not_taken() {
    let mut client = Harness::new(256, Consistency::Eventual);
    let (array, none) = (ArrayId(5), Values::none());
    let malformed = |reason| SubmitError::Malformed(reason);
    let length = ValuesError::Length { expected: 4, found: 0 };
    let pull = || task(PULL, 1);
    let keys = list([2, 1]);
    let range = KeyRange::new(2, 2);
    let refused = [
        (Task { array, ..pull() }, SubmitError::UnknownArray(array)),
        (Task { keys, ..pull() }, malformed(Refusal::BadKeys)),
        (Task { range, ..pull() }, malformed(Refusal::BadKeys)),
        (task(Work::Push(none), 1), malformed(length.into())),
    ];
    for (task, error) in refused {
        assert_eq!(client.try_submit(task), Err(error));
    }
    let limit = ClientConfig::default().max_tasks;
    (0..limit).for_each(|_| drop(client.submit(PULL, 1)));
    assert_eq!(client.try_submit(pull()), Err(SubmitError::Full { limit }));
}

/// Found by the simulation: pulls that wait for the worker's own push kept it from being sent.
#[test]
fn full_window_of_pulls_does_not_hold_back_pushes() {
    let mut client = Harness::new(1, Consistency::Ssp(0));
    assert_eq!(client.submit(PULL, 2).1.len(), 1);
    assert_eq!(client.submit(PULL, 2).1, []);
    assert_eq!(client.submit(rows(), 1).1.len(), 1);
}

#[test]
fn push_does_not_overtake_an_earlier_one_of_the_same_keys() {
    let mut client = Harness::new(256, Consistency::Eventual);
    client.clocks_with(&[]);
    client.submit(rows(), 2);
    client.submit(rows(), 1);
    assert_eq!(client.clocks_with(&[(0, 1)]), [1]);
    assert_eq!(client.clocks_with(&[(0, 1)]), [2]);
}

#[test]
fn rows_sent_ahead_answer_a_pull_while_they_are_fresh_enough() {
    let mut client = Harness::new(256, Consistency::EagerSsp(1));
    client.hear(0, reply(shard(0, 4, 1), None, 2, 3, 5.0));
    client.hear(0, reply(shard(0, 4, 1), None, 1, 3, 6.0));
    client.hear(0, reply(shard(0, 4, 9), None, 9, 9, 7.0));
    assert_eq!(client.submit(PULL, 4).1, [], "updates below 4 - 1 are there");
    assert_eq!(client.0.unfinished(), 0);
    assert_eq!(client.submit(PULL, 5).1.len(), 1, "its own are not");
    client.hear(0, reply(shard(0, 4, 1), None, 2, 4, 5.0));
    assert_eq!(client.submit(PULL, 5).1.len(), 1, "the others' are not");
    client.hear(0, routing(2, &[0, 2, 4]));
    assert_eq!(client.submit(PULL, 4).1.len(), 2, "of a shard that is no more");
}

#[test]
fn part_that_finds_no_room_waits_in_line() {
    let mut client = Harness::new(256, Consistency::Eventual);
    assert_eq!(client.clocks_with(&[(0, 200)]), []);
    // 16 bytes of values, and as much as a message has besides.
    let mut submit = |clock| clocks(client.submit(rows(), clock).1);
    let sent = [1, 2, 3, 4].map(&mut submit);
    assert_eq!(sent, [vec![1], vec![2], vec![], vec![]], "the second one found some room");
    assert_eq!(client.0.held_back(), &BTreeSet::from([NodeId(0)]));
    assert_eq!(client.clocks_with(&[(0, 0)]), []);
    assert_eq!(client.clocks_with(&[(0, 1)]), [3]);
    assert_eq!(client.clocks_with(&[(0, 1 << 20)]), [4]);
    assert!(client.0.held_back().is_empty());
    // A server without a connection is sent nothing, and no task waits for room there.
    assert_eq!(client.clocks_with(&[(9, 1)]), []);
    assert_eq!(clocks(client.submit(rows(), 5).1), []);
    assert!(client.0.held_back().is_empty());
    assert_eq!(client.clocks_with(&[(0, 1 << 20)]), [5]);
}
