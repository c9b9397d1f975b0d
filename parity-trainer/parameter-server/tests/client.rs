//! A client, message by message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::{
    ArrayId, Client, ClientAction, ClientArray, ClientConfig, ClientEvent, Clock, Consistency,
    Epoch, Handle, KeyRange, Keys, Message, NodeId, PullReply, PushAck, Route, Routing, ShardRef,
    Task, TaskOutcome, Values, Work, WorkerId,
};

const ARRAY: ArrayId = ArrayId(0);

fn client(config: ClientConfig, consistency: Consistency) -> Client {
    let mut client = Client::new(
        WorkerId(0),
        config,
        [(
            ARRAY,
            ClientArray {
                width: 1,
                consistency,
            },
        )],
    );
    tell(&mut client, 0, Message::Routing(routing(1, &[0, 4])));
    client
}

/// Shards between these keys, each on one server.
fn routing(version: u64, borders: &[u64]) -> Routing {
    let route = |pair: &[u64]| {
        let range = KeyRange::new(pair[0], pair[1]);
        Route {
            array: ARRAY,
            range,
            epoch: Epoch(version),
            chain: vec![NodeId(pair[0])],
        }
    };
    Routing::new(version, borders.windows(2).map(route).collect()).unwrap()
}

fn tell(client: &mut Client, ms: u64, message: Message) -> Vec<ClientAction> {
    let mut actions = Vec::new();
    client.handle(
        Duration::from_millis(ms),
        ClientEvent::Received(message),
        &mut actions,
    );
    actions
}

fn submit(
    client: &mut Client,
    work: Work,
    clock: u64,
    after: &[Handle],
    priority: u32,
) -> (Handle, Vec<Message>) {
    let (range, after) = (KeyRange::new(0, 4), after.to_vec());
    let task = Task {
        work,
        array: ARRAY,
        range,
        keys: Keys::All,
        clock: Clock(clock),
        after,
        priority,
    };
    let mut actions = Vec::new();
    let handle = client.submit(Duration::ZERO, task, &mut actions).unwrap();
    (handle, messages(actions))
}

fn messages(actions: Vec<ClientAction>) -> Vec<Message> {
    let sent = |action| match action {
        ClientAction::Send { message, .. } => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(sent).collect()
}

fn push_values() -> Work {
    Work::Push(Values::from(vec![0.0, 1.0, 2.0, 3.0]))
}

fn ack(start: u64, end: u64, epoch: u64, clock: u64) -> Message {
    let at = ShardRef {
        array: ARRAY,
        range: KeyRange::new(start, end),
        epoch: Epoch(epoch),
    };
    Message::PushAck(PushAck {
        at,
        worker: WorkerId(0),
        clock: Clock(clock),
    })
}

#[test]
fn a_split_cuts_what_was_not_acknowledged() {
    let mut client = client(ClientConfig::default(), Consistency::Eventual);
    let (handle, sent) = submit(&mut client, push_values(), 1, &[], 0);
    assert_eq!(sent.len(), 1);
    let sent = messages(tell(
        &mut client,
        1,
        Message::Routing(routing(2, &[0, 1, 4])),
    ));
    let parts: Vec<(KeyRange, Values)> = sent
        .into_iter()
        .map(|message| match message {
            Message::Push(push) => (push.at.range, push.values),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (KeyRange::new(0, 1), vec![0.0]),
        (KeyRange::new(1, 4), vec![1.0, 2.0, 3.0]),
    ];
    assert_eq!(
        parts,
        expected.map(|(range, values)| (range, Values::from(values)))
    );
    assert_eq!(tell(&mut client, 2, ack(0, 1, 2, 1)), []);
    assert_eq!(
        tell(&mut client, 3, ack(1, 4, 2, 1)),
        [ClientAction::Done {
            handle,
            outcome: TaskOutcome::Pushed
        }]
    );
}

#[test]
fn what_is_not_answered_is_sent_again() {
    let mut client = client(ClientConfig::default(), Consistency::Eventual);
    let (_, first) = submit(&mut client, push_values(), 1, &[], 0);
    let due = client.next_timer().unwrap();
    let mut actions = Vec::new();
    client.handle(due, ClientEvent::Tick, &mut actions);
    assert_eq!(messages(actions), first);
}

#[test]
fn tasks_wait_for_those_before_them() {
    let mut client = client(ClientConfig::default(), Consistency::Eventual);
    let (push, _) = submit(&mut client, push_values(), 1, &[], 0);
    let (_, sent) = submit(&mut client, Work::Pull, 2, &[push], 0);
    assert_eq!(sent, []);
    let sent = messages(tell(&mut client, 1, ack(0, 4, 1, 1)));
    assert!(matches!(&sent[..], [Message::Pull(_)]), "{sent:?}");
}

/// Found by the simulation: pulls that wait for the worker's own push kept it from being sent.
#[test]
fn a_full_window_of_pulls_does_not_hold_back_pushes() {
    let mut client = client(
        ClientConfig {
            max_pulls: 1,
            ..ClientConfig::default()
        },
        Consistency::Ssp(0),
    );
    assert_eq!(submit(&mut client, Work::Pull, 2, &[], 0).1.len(), 1);
    assert_eq!(submit(&mut client, Work::Pull, 2, &[], 0).1, []);
    assert_eq!(submit(&mut client, push_values(), 1, &[], 9).1.len(), 1);
}

#[test]
fn rows_sent_ahead_answer_a_pull_while_they_are_fresh_enough() {
    let mut client = client(ClientConfig::default(), Consistency::EagerSsp(1));
    let at = ShardRef {
        array: ARRAY,
        range: KeyRange::new(0, 4),
        epoch: Epoch(1),
    };
    let values = Values::from(vec![5.0; 4]);
    let fresh = PullReply {
        at,
        request: None,
        clock: Clock(2),
        own: Clock(3),
        keys: Keys::All,
        values,
    };
    tell(&mut client, 0, Message::PullReply(fresh));
    assert_eq!(
        submit(&mut client, Work::Pull, 4, &[], 0).1,
        [],
        "updates below 4 - 1 are there"
    );
    assert_eq!(client.unfinished(), 0);
    assert_eq!(submit(&mut client, Work::Pull, 5, &[], 0).1.len(), 1);
}

/// The clocks of the pushes that are sent once the ways to servers take so much.
fn clocks_with(client: &mut Client, rooms: &[(u64, usize)]) -> Vec<u64> {
    let rooms: BTreeMap<NodeId, usize> = rooms
        .iter()
        .map(|&(node, room)| (NodeId(node), room))
        .collect();
    let mut actions = Vec::new();
    client.handle(Duration::ZERO, ClientEvent::SendRoom(rooms), &mut actions);
    clocks(messages(actions))
}

fn clocks(sent: Vec<Message>) -> Vec<u64> {
    let clock = |message| match message {
        Message::Push(push) => push.clock.0,
        other => panic!("{other:?}"),
    };
    sent.into_iter().map(clock).collect()
}

#[test]
fn what_finds_no_room_waits_in_line() {
    let mut client = client(ClientConfig::default(), Consistency::Eventual);
    assert_eq!(clocks_with(&mut client, &[(0, 200)]), []);
    // 16 bytes of values, and as much as a message has besides.
    let sent: Vec<Vec<u64>> = (1..=4)
        .map(|clock| clocks(submit(&mut client, push_values(), clock, &[], 0).1))
        .collect();
    assert_eq!(
        sent,
        [vec![1], vec![2], vec![], vec![]],
        "the second one found some room"
    );
    assert_eq!(client.held_back().iter().collect::<Vec<_>>(), [&NodeId(0)]);
    assert_eq!(clocks_with(&mut client, &[(0, 0)]), []);
    assert_eq!(clocks_with(&mut client, &[(0, 1)]), [3]);
    assert_eq!(clocks_with(&mut client, &[(0, 1 << 20)]), [4]);
    assert!(client.held_back().is_empty());
    // A server without a connection is sent nothing, and no task waits for room there.
    assert_eq!(clocks_with(&mut client, &[(9, 1)]), []);
    assert_eq!(clocks(submit(&mut client, push_values(), 5, &[], 0).1), []);
    assert!(client.held_back().is_empty());
    assert_eq!(clocks_with(&mut client, &[(0, 1 << 20)]), [5]);
}
