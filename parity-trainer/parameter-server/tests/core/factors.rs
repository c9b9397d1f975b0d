//! Gradients as factors: on their way to the log, and back to readers that hold rows.

use super::support::*;

const WIDTH: usize = 16;

fn layout() -> Layout {
    Layout::dense(WIDTH, Adam::default())
}

/// The only server of an array of two rows, a matrix of 4 x 8, under BSP.
fn only(chain: &[u64]) -> Node {
    let config = ServerConfig::default();
    Node::holding(array(layout(), Consistency::Bsp), 1, chain, config)
}

fn factors(seed: u64) -> Values {
    let numbers = |count: u64| Vec::from_iter((0..count).map(|i| ((i + 5 * seed) as f32).sin()));
    Values::Factors(Factors::new(1, &numbers(4), &numbers(8)))
}

fn pushed(worker: u64, clock: u64) -> Message {
    let values = factors(10 * worker + clock);
    Message::Push(push_rows(at(1), worker, clock, Keys::All, values))
}

fn pull(worker: u64, clock: u64, held: u64) -> Message {
    let (worker, request) = (WorkerId(worker), RequestId(clock));
    let (clock, held) = (Clock(clock), Clock(held));
    Message::Pull(Pull { at: at(1), worker, request, clock, held, keys: Keys::All })
}

fn values(reply: &Message) -> &Values {
    match reply {
        Message::PullReply(reply) => &reply.values,
        other => panic!("{other:?}"),
    }
}

fn rows(node: &Node) -> Rows {
    node.0.shards().next().unwrap().store.extract(RANGE, usize::MAX)
}

#[test]
fn log_carries_factors_and_a_reader_makes_the_rows_of_them() {
    let mut only = only(&[1]);
    (0..2).for_each(|worker| drop(only.hear(super::support::worker(worker), pushed(worker, 1))));
    let mut mirror = Mirror::new(layout());
    assert!(mirror.set(Clock(1), &[rows(&only)]));
    (0..2).for_each(|worker| drop(only.hear(super::support::worker(worker), pushed(worker, 2))));

    let update = only.ask(worker(0), pull(0, 3, 1));
    let Values::Factors(sum) = values(&update) else { panic!("{update:?}") };
    let at_two = |updates| {
        let values = vec![0.0; 2 * WIDTH].into();
        Pulled { clock: Clock(2), newest: Clock(2), values, updates, ..Pulled::default() }
    };
    let mut pulled = at_two(vec![(RANGE, sum.clone())]);
    let mut early = mirror.clone();
    assert!(mirror.take(RANGE, &mut pulled));
    let exact = only.ask(worker(1), pull(1, 3, 0));
    assert_eq!((&*pulled.values, mirror.held()), (&*values(&exact).to_f32(), Clock(2)));

    // Without an update for all rows there is nothing to compute with.
    let half = KeyRange::new(0, 1);
    let part = values(&update).slice(0..WIDTH);
    let Values::Factors(part) = part else { panic!("{part:?}") };
    assert!(!early.take(RANGE, &mut at_two(vec![(half, part)])));
    assert_eq!(early.held(), Clock(0));
    assert!(!early.take(RANGE, &mut at_two(vec![(RANGE, sum.clone())])), "nothing is held");
    // Rows in place of an update leave the optimiser's state unknown.
    assert!(mirror.take(RANGE, &mut at_two(Vec::new())) && mirror.held() == Clock(0));
}

#[test]
fn reader_of_other_rows_is_sent_rows() {
    let mut only = only(&[1]);
    for clock in 1..=2 {
        for id in 0..2 {
            only.hear(worker(id), pushed(id, clock));
        }
    }
    let is_rows = |reply: &Message| matches!(values(reply), Values::F32(_));
    for held in [0, 2, 3] {
        assert!(is_rows(&only.ask(worker(0), pull(0, 3, held))), "{held}");
    }
    // A push that comes late changes rows that are held: its clock's are not those of the update.
    only.tell(Event::Members(members(2, &[0, 1, 5])));
    only.hear(worker(5), pushed(5, 1));
    only.hear(worker(5), pushed(5, 2));
    assert!(is_rows(&only.ask(worker(0), pull(0, 3, 1))));
    for clock in 3..=4 {
        for id in [0, 1, 5] {
            only.hear(worker(id), pushed(id, clock));
        }
        let reply = only.ask(worker(0), pull(0, clock + 1, clock - 1));
        assert!(is_rows(&reply), "three workers' factors are more than rows");
    }
}

#[test]
fn late_push_is_in_no_readers_way_for_long() {
    let mut only = only(&[1]);
    only.tell(Event::Members(members(2, &[0])));
    only.hear(worker(0), pushed(0, 1));
    only.hear(worker(0), pushed(0, 2));
    only.tell(Event::Members(members(3, &[0, 5])));
    only.hear(worker(5), pushed(5, 1));
    only.hear(worker(5), pushed(5, 2));
    let factors_of = |only: &mut Node, clock: u64| {
        for id in [0, 5] {
            only.hear(worker(id), pushed(id, clock));
        }
        let reply = only.ask(worker(0), pull(0, clock + 1, clock - 1));
        matches!(values(&reply), Values::Factors(_))
    };
    assert!(!factors_of(&mut only, 3), "rows of clock 2 may be those before the late push");
    assert!(factors_of(&mut only, 4));
}

#[test]
fn factors_of_a_wrong_shape_or_that_overflow_are_refused() {
    let mut only = only(&[1]);
    let wrong = |values| Message::Push(push_rows(at(1), 0, 1, Keys::All, values));
    let short = Factors::new(1, &[1.0; 3], &[1.0; 8]);
    let short = refusal(&only.ask(worker(0), wrong(Values::Factors(short))));
    let (expected, found) = (32, 24);
    assert_eq!(short, Some(ValuesError::Length { expected, found }.into()));
    let ragged = Factors::new(2, &[1.0; 8], &[1.0; 15]);
    assert!(refusal(&only.ask(worker(0), wrong(Values::Factors(ragged)))).is_some());
    let nan = Factors::new(1, &[f32::NAN; 4], &[1.0; 8]);
    let nan = refusal(&only.ask(worker(0), wrong(Values::Factors(nan))));
    assert_eq!(nan, Some(ValuesError::NotFinite { at: 0 }.into()));
    // Each factor is finite, and their product is not.
    only.tell(Event::Members(members(2, &[0])));
    let large = Values::Factors(Factors::new(1, &[1e30; 4], &[1e30; 8]));
    let large = refusal(&only.ask(worker(0), wrong(large)));
    assert_eq!(large, Some(Refusal::Overflow { key: 0 }));
    let untouched = rows(&only).values.to_f32();
    assert!(untouched.iter().all(|&number| number == 0.0));
}
