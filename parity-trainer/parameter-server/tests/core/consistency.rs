//! Every consistency model over random interleavings of workers, with a checker that counts updates
//! by worker and key; a model that is off by one is caught.

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::support::*;

const WORKERS: u64 = 3;
const KEYS: Key = 8;
const RANGE: KeyRange = KeyRange::new(0, KEYS);

/// The model by which a pull may miss one clock more.
const fn off_by_one(model: Consistency) -> Consistency {
    match model {
        Consistency::Bsp => Consistency::BoundedDelay(1),
        Consistency::BoundedDelay(delay) => Consistency::BoundedDelay(delay + 1),
        Consistency::Ssp(slack) => Consistency::Ssp(slack + 1),
        Consistency::EagerSsp(slack) => Consistency::EagerSsp(slack + 1),
        Consistency::Eventual => Consistency::Eventual,
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// The worker pushes part of its clock, or pulls when it has pushed all of it.
    Work(usize, Key),
    /// The worker sends part of its last push again.
    Resend(usize, Key),
    Join,
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = || 0usize..6;
    let step = prop_oneof![
        20 => (worker(), 1..=KEYS).prop_map(|(worker, cut)| Step::Work(worker, cut)),
        3 => (worker(), 0..KEYS).prop_map(|(worker, cut)| Step::Resend(worker, cut)),
        1 => Just(Step::Join),
        1 => worker().prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..160)
}

struct Worker {
    id: WorkerId,
    /// It counts as having pushed everything up to this.
    joined: Clock,
    /// The iteration it is in.
    clock: Clock,
    /// Keys below are pushed.
    pushed: Key,
}

impl Worker {
    fn new(id: u64, joined: Clock) -> Self {
        Self { id: WorkerId(id), joined, clock: joined.next(), pushed: 0 }
    }

    /// One digit for each worker: worker w adds 16^w to each key at each clock.
    fn push(&self, clock: Clock, range: KeyRange) -> Push {
        let digit = 16f32.powi(i32::try_from(self.id.0).unwrap());
        let values = vec![digit; usize::try_from(range.len()).unwrap()];
        let at = ShardRef::new(ARRAY, range, Epoch(1));
        push_rows(at, self.id.0, clock.0, Keys::All, values.into())
    }

    /// A push that only advances the clock.
    fn skip(&self, clock: Clock, range: KeyRange) -> Push {
        let at = ShardRef::new(ARRAY, range, Epoch(1));
        push_rows(at, self.id.0, clock.0, Keys::none(), Values::none())
    }

    /// Number of its updates in a value.
    fn count(&self, value: f32) -> u64 {
        (value as u64 >> (4 * self.id.0)) & 15
    }
}

/// One array on one server, and what its workers have pushed and read.
struct Run {
    model: Consistency,
    /// The model that the server follows.
    followed: Consistency,
    store: Store,
    applied: RangedClocks,
    aggregator: PushAggregator,
    workers: Vec<Worker>,
    gone: BTreeMap<WorkerId, Worker>,
    next_id: u64,
    answered: usize,
}

impl Run {
    fn new(model: Consistency, followed: Consistency) -> Self {
        let mut applied = RangedClocks::new(RANGE);
        let workers: Vec<Worker> = (0..WORKERS).map(|id| Worker::new(id, Clock(0))).collect();
        workers.iter().for_each(|worker| assert!(applied.join(worker.id, Clock(0))));
        Self {
            model,
            followed,
            store: Store::new(Layout::dense(1, Add), RANGE),
            aggregator: PushAggregator::new(1, applied.clone()),
            applied,
            workers,
            gone: BTreeMap::new(),
            next_id: WORKERS,
            answered: 0,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Work(worker, cut) => self.work(worker % self.workers.len(), cut)?,
            Step::Resend(worker, cut) => self.resend(worker % self.workers.len(), cut)?,
            Step::Join if self.next_id < 5 => {
                self.workers.push(Worker::new(self.next_id, self.last()));
                self.next_id += 1;
            }
            Step::Leave(worker) if self.workers.len() > 1 => {
                let worker = self.workers.remove(worker % self.workers.len());
                self.gone.insert(worker.id, worker);
            }
            Step::Join | Step::Leave(_) => {}
        }
        let members: Vec<_> = self.workers.iter().map(|w| (w.id, w.joined)).collect();
        self.aggregator.set_members(&members);
        for (worker, clock) in members {
            self.applied.join(worker, clock);
        }
        for &worker in self.gone.keys() {
            self.applied.leave(worker);
        }
        self.apply()
    }

    /// The clock of the most advanced worker.
    fn last(&self) -> Clock {
        self.workers.iter().map(|worker| worker.clock).max().unwrap()
    }

    fn work(&mut self, at: usize, cut: u64) -> Result<(), TestCaseError> {
        let worker = &self.workers[at];
        if worker.clock.0 - worker.joined.0 >= 14 {
            return Ok(());
        }
        let range = KeyRange::new(worker.pushed, (worker.pushed + cut).min(KEYS));
        // Pulls first: iteration c reads before it pushes clock c.
        if worker.pushed == 0 {
            if !self.followed.may_read(&self.applied, worker.id, RANGE, worker.clock) {
                return Ok(());
            }
            self.read(at)?;
        }
        let worker = &mut self.workers[at];
        prop_assert_eq!(self.aggregator.take(&worker.push(worker.clock, range)), Ok(true));
        worker.pushed = range.end;
        if worker.pushed == KEYS {
            (worker.clock, worker.pushed) = (worker.clock.next(), 0);
        }
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<(), TestCaseError> {
        let (me, clock, model) = (self.workers[at].id, self.workers[at].clock, self.model);
        self.answered += 1;
        let is_exact = model == Consistency::Bsp && self.gone.is_empty() && self.next_id == WORKERS;
        let sees_itself = matches!(model, Consistency::Ssp(_) | Consistency::EagerSsp(_));
        for other in &self.workers {
            let needed = model.needed(clock).0.saturating_sub(other.joined.0);
            let own = clock.0 - 1 - other.joined.0.min(clock.0 - 1);
            for value in read(&self.store, RANGE) {
                let seen = other.count(value);
                prop_assert!(seen >= needed, "{model:?} at {clock} saw {seen} of {}", other.id);
                if is_exact && clock > other.joined {
                    prop_assert_eq!(seen, clock.0 - 1, "BSP sees exactly what is before");
                }
                if other.id == me && sees_itself {
                    prop_assert_eq!(seen, own, "a worker sees itself");
                }
            }
        }
        Ok(())
    }

    fn resend(&mut self, at: usize, cut: u64) -> Result<(), TestCaseError> {
        let worker = &self.workers[at];
        let (last, expected) = (worker.clock.minus(1), worker.clock);
        if last > worker.joined {
            let again = worker.push(last, KeyRange::new(cut, KEYS));
            prop_assert_eq!(self.aggregator.take(&again), Ok(false));
        }
        let skipped = self.aggregator.take(&worker.skip(worker.clock.next(), RANGE));
        prop_assert_eq!(skipped, Err(Refusal::Gap { expected }));
        Ok(())
    }

    /// Applies what the policy lets be applied.
    fn apply(&mut self) -> Result<(), TestCaseError> {
        let mut pool = Pool::new(1 << 20);
        while let Some(Update { range, clocks, keys, values }) =
            self.aggregator.next_update(self.followed, &mut pool)
        {
            let is_bsp = self.model == Consistency::Bsp;
            prop_assert!(!is_bsp || clocks.windows(2).all(|c| c[0].1 == c[1].1));
            for (worker, clock) in clocks {
                self.applied.advance(worker, range, clock);
            }
            prop_assert_eq!(self.store.update(range, &keys, &values.to_f32()), Ok(()));
        }
        Ok(())
    }

    /// All workers finish the clock of the most advanced: everything received is applied, exactly
    /// once.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        let last = self.last();
        for worker in &self.workers {
            let mut from = worker.pushed;
            for clock in (worker.clock.0..=last.0).map(Clock) {
                let skipped = worker.skip(clock, KeyRange::new(from, KEYS));
                prop_assert_eq!(self.aggregator.take(&skipped), Ok(true));
                from = 0;
            }
        }
        self.apply()?;
        for worker in self.workers.iter().chain(self.gone.values()) {
            for (key, value) in (0..).zip(read(&self.store, RANGE)) {
                let sent = worker.clock.0 - 1 - worker.joined.0 + u64::from(key < worker.pushed);
                prop_assert_eq!(worker.count(value), sent, "{:?}, key {}", self.model, key);
            }
        }
        Ok(())
    }
}

/// Returns the number of answered pulls, or the first violation.
fn run(model: Consistency, followed: Consistency, steps: &[Step]) -> Result<usize, TestCaseError> {
    let mut run = Run::new(model, followed);
    for step in steps {
        run.step(step)?;
    }
    run.finish()?;
    Ok(run.answered)
}

const MODELS: [Consistency; 8] = [
    Consistency::Bsp,
    Consistency::BoundedDelay(0),
    Consistency::BoundedDelay(2),
    Consistency::Ssp(0),
    Consistency::Ssp(1),
    Consistency::Ssp(3),
    Consistency::EagerSsp(1),
    Consistency::Eventual,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pulls_miss_nothing_they_must_see(
        steps in steps(),
        model in prop::sample::select(&MODELS[..]),
    ) {
        run(model, model, &steps)?;
    }
}

/// A run in turns never waits: the models do not merely block.
#[test]
fn workers_in_step_are_never_blocked() {
    let rounds: Vec<Step> = (0..30).map(|i| Step::Work(i % 3, KEYS)).collect();
    for model in MODELS {
        assert_eq!(run(model, model, &rounds).unwrap(), 30, "{model:?}");
    }
}

/// A fast worker gets exactly as far ahead as its slack lets it.
#[test]
fn slack_is_used_to_the_full() {
    let alone = vec![Step::Work(0, KEYS); 10];
    let expected = [
        (Consistency::Bsp, 1),
        (Consistency::BoundedDelay(2), 3),
        (Consistency::Ssp(3), 4),
        (Consistency::Eventual, 10),
    ];
    for (model, answered) in expected {
        assert_eq!(run(model, model, &alone).unwrap(), answered, "{model:?}");
    }
}

#[test]
fn model_that_is_off_by_one_is_caught() {
    use Consistency::{BoundedDelay, Bsp, EagerSsp, Ssp};
    for model in [Bsp, BoundedDelay(2), Ssp(1), EagerSsp(1)] {
        let mut runner = TestRunner::deterministic();
        let found = (0..300).any(|_| {
            let steps = steps().new_tree(&mut runner).unwrap().current();
            run(model, off_by_one(model), &steps).is_err()
        });
        assert!(found, "{model:?}");
    }
}
