//! A server, message by message: what the simulation leaves to chance.

use crate::support::*;

const EVENTUAL: Consistency = Consistency::Eventual;

fn config(change: fn(&mut ServerConfig)) -> ServerConfig {
    let mut config = ServerConfig::default();
    change(&mut config);
    config
}

#[test]
fn acknowledgement_waits_for_the_chain() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    let sent = head.hear(worker(0), push(1, 0, 1));
    // Place 1 is the list of workers.
    let [(to, Message::Replicate(entry))] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((*to, entry.seq), (server(1), Seq(2)));
    let again = head.hear(worker(0), push(1, 0, 1));
    assert_eq!(again, [], "a resend is neither applied nor acknowledged");
    assert_eq!(head.hear(server(1), replicated(1, 2)), [ack(1, 0, 1)]);
    let again = head.hear(worker(0), push(1, 0, 1));
    assert_eq!(again, [ack(1, 0, 1)], "a resend of what is safe is acknowledged");
    assert_eq!(head.values(), [1.0, 2.0]);
}

#[test]
fn acknowledgement_tells_the_times_of_the_head_and_of_the_chain() {
    let mut head = Node::new(0, Consistency::Bsp, &[0, 1]);
    head.hear(server(1), replicated(1, 1));
    head.hear(worker(0), push(1, 0, 1));
    head.wait(ms(30));
    head.hear(worker(1), push(1, 1, 1));
    head.wait(ms(7));
    let answers = head.hear(server(1), replicated(1, 2));
    let times = |(_, message): &(Peer, Message)| match message {
        Message::Answer(Answer { held_us, copied_us, .. }) => (*held_us, *copied_us),
        other => panic!("{other:?}"),
    };
    let times = Vec::from_iter(answers.iter().map(times));
    assert_eq!(times, [(37_000, 7_000), (7_000, 7_000)], "the first push waited for the second");
}

/// Times at which a message of each kind was sent, of a server that is looked at every 10 ms.
fn resends(node: &mut Node, seconds: u64) -> usize {
    let sent = (0..100 * seconds).flat_map(|_| node.wait(ms(10)));
    sent.filter(|(_, message)| matches!(message, Message::Replicate(_) | Message::Snapshot(_)))
        .count()
}

#[test]
fn what_waits_for_a_slow_server_is_sent_again_ever_more_rarely() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    head.hear(server(1), replicated(1, 1));
    head.hear(worker(0), push(1, 0, 1));
    assert!((2..=5).contains(&resends(&mut head, 1)), "50, 150, 350, 750 ms");
    head.hear(server(1), replicated(1, 2));
    head.hear(worker(0), push(1, 0, 2));
    assert!(resends(&mut head, 1) <= 1, "the one before took a second");
    assert_eq!(sent(head.tell(Event::Connected(NodeId(2)))), []);
    assert_eq!(sent(head.tell(Event::Connected(NodeId(1)))).len(), 1, "it may be lost");
    assert_eq!(head.wait(ms(110)).len(), 1, "and be lost again");

    let mut tail = Node::new(0, EVENTUAL, &[0]);
    assert_eq!(sent(tail.tell(hand_over(1))).len(), 1);
    assert!((2..=5).contains(&resends(&mut tail, 1)));
}

#[test]
fn log_is_sent_again_to_those_whose_chain_changes() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    let [one, other] = [(0, 1), (1, 2)].map(|(start, end)| shard(start, end, 2));
    let tables = [[2, 2], [2, 3]].map(|epochs| {
        let shards = [one, other].into_iter().zip(epochs);
        shards.map(|(shard, epoch)| {
            Route::new(ShardRef { epoch: Epoch(epoch), ..shard }, nodes(&[0, 1]))
        })
    });
    head.hear(worker(0), push(1, 0, 1));
    let hear = |head: &mut Node, version, routes| {
        let answers = head.hear(REGISTRY, Message::Routing(table(version, routes)));
        let epoch = |(_, message)| match message {
            Message::Replicate(entry) => Some(entry.at.epoch.0),
            _ => None,
        };
        Vec::from_iter(answers.into_iter().filter_map(epoch))
    };
    let [first, second] = tables;
    assert_eq!(hear(&mut head, 2, first.collect::<Vec<_>>()), [2, 2, 2, 2]);
    assert_eq!(hear(&mut head, 3, second.collect()), [3, 3]);
}

#[test]
fn old_head_is_refused_by_its_successor_and_stops() {
    let mut old = Node::new(0, EVENTUAL, &[0, 1]);
    let mut new = Node::new(1, EVENTUAL, &[0, 1]);
    new.route(2, &[1]);
    let entry = old.ask(worker(0), push(1, 0, 1));
    let refused = new.ask(server(0), entry);
    let current = Epoch(2);
    let fenced = Some(Refusal::WrongEpoch { current });
    assert_eq!(refusal(&refused), fenced);
    // Only a server of the chain fences its head.
    old.hear(server(7), refused.clone());
    assert!(old.0.shards().next().unwrap().accepts_pushes);
    old.hear(server(1), refused);
    assert_eq!(refusal(&old.ask(worker(0), push(1, 0, 2))), fenced);
    assert_eq!(old.0.next_timer(), None);
    assert_eq!(old.hear(server(1), replicated(1, 2)), []);
}

#[test]
fn promoted_head_knows_what_it_has_applied() {
    let mut second = Node::new(1, EVENTUAL, &[0, 1]);
    let workers = Operation::Members(members(1, &[0, 1]));
    second.hear(server(0), replicate(1, workers));
    second.hear(server(0), entry(2, [1.0, 2.0]));
    let again = second.hear(server(0), entry(2, [1.0, 2.0]));
    assert_eq!(again, [(server(0), replicated(1, 2))], "acknowledged again");
    let early = second.ask(server(0), entry(4, [1.0, 2.0]));
    assert_eq!(refusal(&early), Some(Refusal::Busy), "too early");
    second.route(2, &[1]);
    assert_eq!(second.hear(worker(0), push(2, 0, 1)), [ack(2, 0, 1)]);
    assert_eq!(second.values(), [1.0, 2.0], "applied once");
}

#[test]
fn bsp_adds_up_before_it_replicates() {
    let mut head = Node::new(0, Consistency::Bsp, &[0, 1]);
    assert_eq!(head.hear(worker(0), push(1, 0, 1)), []);
    let entry = head.ask(worker(1), push(1, 1, 1));
    let sum = vec![2.0, 4.0].into();
    assert_eq!(entry, update(2, &[0, 1], Keys::All, sum));
    assert_eq!(head.hear(server(1), replicated(1, 2)), [ack(1, 0, 1), ack(1, 1, 1)]);
}

fn pull(worker: u64, request: u64, clock: u64, keys: Keys) -> Message {
    Message::Pull(Pull {
        at: at(1),
        worker: WorkerId(worker),
        request: RequestId(request),
        clock: Clock(clock),
        held: Clock(0),
        keys,
    })
}

/// Seed 226 of the simulation: a tail that was replaced before it heard of the workers
/// waited for none.
#[test]
fn tail_that_does_not_know_the_reader_does_not_answer_it() {
    let mut tail = Node::new(1, Consistency::Ssp(0), &[0, 1]);
    let answer = tail.ask(worker(0), pull(0, 1, 2, Keys::All));
    assert_eq!(refusal(&answer), Some(Refusal::UnknownWorker));
    let answer = tail.ask(worker(0), pull(0, 1, 0, Keys::All));
    assert!(matches!(answer, Message::PullReply(_)), "as it is: {answer:?}");
}

#[test]
fn requests_to_the_wrong_server_or_with_wrong_rows_are_refused() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    let mut tail = Node::new(1, EVENTUAL, &[0, 1]);
    let rows = |at, keys, count| Message::Push(push_rows(at, 0, 1, keys, vec![1.0; count].into()));
    let (current, expected, found) = (Epoch(1), 2, 1);
    let length = ValuesError::Length { expected, found };
    let to_head = [
        (0, pull(0, 1, 0, Keys::All), Refusal::NotTail),
        (7, push(1, 7, 1), Refusal::UnknownWorker),
        (0, rows(at(1), list([0, 2]), 2), Refusal::BadKeys),
        (0, rows(shard(1, 1, 1), Keys::All, 0), Refusal::BadKeys),
        (0, rows(at(1), Keys::All, 1), length.into()),
        (0, rows(shard(1, 3, 1), Keys::All, 0), Refusal::UnknownRange),
        (0, push(2, 0, 1), Refusal::WrongEpoch { current }),
    ];
    for (number, (from, request, reason)) in to_head.into_iter().enumerate() {
        let answer = head.ask(worker(from), request);
        assert_eq!(refusal(&answer), Some(reason), "{number}");
    }
    let to_tail =
        [(pull(0, 1, 0, list([1, 0])), Refusal::BadKeys), (push(1, 0, 1), Refusal::NotHead)];
    for (request, reason) in to_tail {
        assert_eq!(refusal(&tail.ask(worker(0), request)), Some(reason));
    }
}

#[test]
fn waiting_pull_is_answered_once_and_bounded() {
    let config = config(|config| config.max_waiting = 1);
    let mut only = Node::bounded(1, Consistency::Bsp, &[1], config);
    assert_eq!(only.hear(worker(0), pull(0, 1, 2, Keys::All)), []);
    assert_eq!(only.hear(worker(0), pull(0, 1, 2, Keys::All)), [], "a resend takes no place");
    let full = only.ask(worker(1), pull(1, 1, 2, Keys::All));
    assert_eq!(refusal(&full), Some(Refusal::Busy));
    only.hear(worker(0), push(1, 0, 1));
    let answers = only.hear(worker(1), push(1, 1, 1));
    let replies = answers.iter().filter(|(_, message)| matches!(message, Message::PullReply(_)));
    assert_eq!(replies.count(), 1, "{answers:?}");
}

#[test]
fn fresh_rows_are_sent_to_readers_when_a_clock_is_finished() {
    let mut only = Node::new(1, Consistency::EagerSsp(0), &[1]);
    only.hear(worker(0), pull(0, 1, 1, list([1])));
    assert_eq!(only.hear(worker(0), push(1, 0, 1)), [ack(1, 0, 1)]);
    let sent = only.hear(worker(1), push(1, 1, 1));
    let fresh = Message::PullReply(PullReply {
        at: at(1),
        request: None,
        clock: Clock(1),
        own: Clock(1),
        held_us: 0,
        keys: list([1]),
        values: vec![4.0].into(),
    });
    assert_eq!(sent, [ack(1, 1, 1), (worker(0), fresh)]);
    only.tell(Event::Members(members(2, &[1])));
    assert_eq!(only.hear(worker(1), push(1, 1, 2)), [ack(1, 1, 2)], "the reader has left");
}

#[test]
fn array_is_known_anew_while_no_shard_of_it_is_held() {
    let array = |width| array(Layout::dense(width, Add), EVENTUAL);
    let mut node =
        Node(Server::new(NodeId(1), ServerConfig::default(), [(ARRAY, array(5))]), ms(0));
    node.0.define(ARRAY, array(1));
    node.route(1, &[1]);
    node.0.define(ARRAY, array(5));
    assert_eq!(node.0.shards().next().unwrap().store.layout().width, 1);
    assert_eq!(node.values(), [0.0, 0.0]);
}

fn is_busy(answers: &[(Peer, Message)]) -> bool {
    matches!(answers, [(_, answer)] if refusal(answer) == Some(Refusal::Busy))
}

#[test]
fn log_that_is_long_in_bytes_or_entries_takes_no_more() {
    // Eight bytes each, after the list of workers.
    for config in [config(|c| c.max_bytes = 16), config(|c| c.max_log = 3)] {
        let mut head = Node::bounded(1, EVENTUAL, &[1, 2], config);
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 1))));
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 2))));
        assert!(is_busy(&head.hear(worker(0), push(1, 0, 3))));
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 2))), "a resend needs no room");
        head.hear(server(2), replicated(1, 3));
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 3))));
    }
}

#[test]
fn worker_ahead_of_the_others_has_little_pending() {
    for config in [config(|c| c.max_bytes = 16), config(|c| c.max_pending = 2)] {
        let mut head = Node::bounded(1, Consistency::Bsp, &[1], config);
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 1))));
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 2))));
        assert!(is_busy(&head.hear(worker(0), push(1, 0, 3))));
        // The one that all wait for is not held up by it.
        assert!(!is_busy(&head.hear(worker(1), push(1, 1, 1))));
        assert!(!is_busy(&head.hear(worker(0), push(1, 0, 3))));
    }
}

#[test]
fn unacknowledged_entries_are_sent_again_after_a_while() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    let entry = head.hear(worker(0), push(1, 0, 1));
    assert_eq!(head.wait(ms(49)), []);
    let again = head.wait(ms(1));
    assert_eq!((again.len(), &again[1..]), (2, &entry[..]), "with the list of workers");
    head.hear(server(1), replicated(1, 2));
    assert_eq!(head.0.next_timer(), None);
}

#[test]
fn pieces_of_wide_rows_are_small() {
    let mut tail = Node::bounded(1, Consistency::Bsp, &[1], config(|c| c.copy_bytes = 7));
    let pieces = sent(tail.tell(hand_over(2)));
    let [(_, Message::Snapshot(piece))] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!(piece.rows.values.len(), 1);
}

/// Server 1 with two rows, which it copies one at a time, server 2, to which it does, and the first
/// piece.
fn copying() -> (Node, Node, Message) {
    let config = config(|config| config.copy_rows = 1);
    let [mut source, newcomer] = [1, 2].map(|node| Node::bounded(node, EVENTUAL, &[1], config));
    source.hear(worker(0), push(1, 0, 1));
    let (to, first) = sent(source.tell(hand_over(2))).remove(0);
    assert_eq!(to, server(2));
    (source, newcomer, first)
}

/// Carries pieces and answers between the two until the newcomer has everything.
fn carry(source: &mut Node, newcomer: &mut Node, first: Message) {
    let mut piece = Some(first);
    while let Some(next) = piece {
        let answer = newcomer.ask(server(1), next);
        piece = source.hear(server(2), answer).pop().map(|(_, piece)| piece);
    }
    assert_eq!(newcomer.copies(), [(at(1), true)]);
}

const FORGET: Duration = Duration::from_secs(31);

#[test]
fn copy_that_gets_no_further_is_dropped() {
    let (mut source, mut newcomer, first) = copying();
    assert_eq!(source.wait(ms(50)), [(server(2), first.clone())], "sent again");
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
fn complete_copy_is_kept_until_its_array_ends() {
    let (mut source, mut newcomer, first) = copying();
    carry(&mut source, &mut newcomer, first);
    newcomer.wait(10 * FORGET);
    assert_eq!(newcomer.copies(), [(at(1), true)]);
    newcomer.hear(REGISTRY, Message::Routing(table(2, [])));
    assert_eq!(newcomer.copies(), []);
}

#[test]
fn complete_copy_is_proposed_until_the_epoch_is_raised() {
    let (mut source, mut newcomer, first) = copying();
    carry(&mut source, &mut newcomer, first);
    let stopped = source.ask(worker(0), push(1, 0, 2));
    assert_eq!(refusal(&stopped), Some(Refusal::Stopped));
    source.1 += ms(50);
    let add = NodeId(2);
    assert_eq!(source.tell(Event::Tick), [Action::Propose { at: at(1), add }]);
    source.route(2, &[1, 2]);
    assert!(source.0.shards().next().unwrap().accepts_pushes);
}

#[test]
fn copy_goes_on_after_a_refusal_that_may_be_repeated() {
    let (mut source, mut newcomer, first) = copying();
    let Message::Snapshot(piece) = &first else { panic!("{first:?}") };
    let (transfer, part) = (piece.transfer, piece.part);
    let request = Request::Snapshot { transfer, part };
    let refused = answer(at(1), request, Some(Refusal::UnknownWorker));
    assert_eq!(source.hear(server(2), refused), []);
    carry(&mut source, &mut newcomer, first);
}

#[test]
fn newcomer_that_has_dropped_its_part_is_copied_to_again() {
    let (mut source, mut newcomer, first) = copying();
    let taken = newcomer.ask(server(1), first);
    let last = source.ask(server(2), taken);
    source.tell(Event::Members(members(2, &[0])));
    newcomer.wait(FORGET);
    let dropped = newcomer.ask(server(1), last.clone());
    let again = source.ask(server(2), dropped.clone());
    let parts = [&last, &again].map(|message| match message {
        Message::Snapshot(piece) => (piece.transfer.0, piece.part),
        other => panic!("{other:?}"),
    });
    assert_eq!((parts[0].1, parts[1].1), (1, 0));
    assert!(parts[0].0 < parts[1].0, "another attempt");
    assert_eq!(source.hear(server(2), dropped), [], "said again, of what is over");
    // It does not stand still meanwhile, and has taken note of what came while it did.
    assert_eq!(source.hear(worker(0), push(1, 0, 2)), [ack(1, 0, 2)]);
    let answer = source.ask(worker(1), push(1, 1, 1));
    assert_eq!(refusal(&answer), Some(Refusal::UnknownWorker));
    carry(&mut source, &mut newcomer, again);
    newcomer.route(2, &[1, 2]);
    assert_eq!(newcomer.values(), [2.0, 4.0]);
}

#[test]
fn head_becomes_the_tail_without_a_copy_once_the_chain_has_its_log() {
    let mut head = Node::new(0, EVENTUAL, &[0, 1]);
    head.hear(worker(0), push(1, 0, 1));
    let asked = Action::Propose { at: at(1), add: NodeId(0) };
    assert_eq!(head.tell(hand_over(0)), [], "the other server may not have all of it");
    let stopped = head.ask(worker(0), push(1, 0, 2));
    assert_eq!(refusal(&stopped), Some(Refusal::Stopped));
    let (from, message) = (server(1), replicated(1, 2));
    assert!(head.tell(Event::Received { from, message }).contains(&asked));
    head.1 += ms(10_000);
    assert_eq!(head.tell(Event::Tick), [asked], "until the epoch is raised");
    head.route(2, &[1, 0]);
    assert_eq!(head.values(), [1.0, 2.0]);
    assert_eq!(refusal(&head.ask(worker(0), push(2, 0, 2))), Some(Refusal::NotHead));
    let operation = Operation::Members(members(2, &[0]));
    let entry = Replicate { at: at(2), seq: Seq(3), operation };
    let taken = head.hear(server(1), Message::Replicate(entry));
    assert_eq!(taken, [(server(1), replicated(2, 3))]);
}
