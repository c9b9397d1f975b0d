//! Workers: pull, think, push, for each clock.

use super::*;

pub struct Worker {
    pub joined: Clock,
    /// The iteration it is in.
    pub clock: Clock,
    pub client: Client,
    pub pulls: Vec<(Handle, ArrayId)>,
    pub mirror: Mirror,
    /// The tasks that have not ended.
    tasks: BTreeMap<Handle, Task>,
    pub gone: bool,
}

impl Worker {
    pub fn has_finished(&self) -> bool {
        self.gone || (self.clock > LAST && self.client.unfinished() == 0)
    }

    fn submit(
        &mut self,
        now: Duration,
        task: Task,
        actions: &mut Vec<ClientAction>,
    ) -> Outcome<Handle> {
        let submitted = self.client.submit(now, task.clone(), actions);
        let handle = submitted.map_err(|error| error.to_string())?;
        self.tasks.insert(handle, task);
        Ok(handle)
    }

    /// Takes note of a task's end. Returns true if the worker can go on.
    pub fn finished(&mut self, handle: Handle, outcome: &TaskOutcome) -> bool {
        assert!(outcome.is_ok() || self.gone, "{handle:?} failed: {outcome:?}");
        let before = self.pulls.len();
        self.pulls.retain(|(pull, _)| *pull != handle);
        before == 1 && self.pulls.is_empty()
    }
}

impl Simulation {
    pub fn start_worker(&mut self, joined: Clock) {
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let config = ClientConfig {
            resend: ms(12),
            retry: ms(12),
            max_pulls: self.rng.random_range(1..8),
            max_tasks: 64,
        };
        let consistency = self.model;
        let array = |width| ClientArray { width, consistency };
        let arrays = [(COUNTED, array(COLUMNS)), (TRAINED, array(2)), (FACTORED, array(WIDE))];
        let worker = Worker {
            joined,
            clock: joined,
            client: Client::new(id, config, arrays),
            pulls: Vec::new(),
            mirror: Mirror::new(factored()),
            tasks: BTreeMap::new(),
            gone: false,
        };
        self.workers.insert(id, worker);
        self.registry.members.workers.push((id, joined));
        self.registry.members.version += 1;
        self.report(|cluster| cluster.present_workers.insert(id));
        self.at(5_000, Due::Proceed(id));
    }

    /// Pushes the clock of the iteration, and pulls for the next.
    pub fn proceed(&mut self, id: WorkerId) -> Outcome<()> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) else {
            return Ok(());
        };
        let mut actions = Vec::new();
        let clock = worker.clock;
        let pushes = clock > worker.joined;
        for array in [COUNTED, TRAINED].into_iter().filter(|_| pushes) {
            let cut = self.rng.random_range(0..KEYS);
            for range in [KeyRange::new(0, cut), KeyRange::new(cut, KEYS)] {
                if range.is_empty() {
                    continue;
                }
                let (keys, values) =
                    numbers(&mut self.rng, &mut self.check, id, clock, array, range);
                let task = Task { work: Work::Push(values.into()), array, range, keys, clock };
                worker.submit(now, task, &mut actions)?;
            }
        }
        for (range, values) in factors(&mut self.rng, clock).into_iter().filter(|_| pushes) {
            let (work, keys) = (Work::Push(values), Keys::All);
            worker.submit(now, Task { work, array: FACTORED, range, keys, clock }, &mut actions)?;
        }
        worker.clock = clock.next();
        if worker.clock <= LAST {
            worker.pulls.clear();
            self.check.pulls(id);
            for array in [COUNTED, TRAINED, FACTORED] {
                let held = match array {
                    FACTORED => worker.mirror.held(),
                    _ => Clock(0),
                };
                let task = Task {
                    work: Work::Pull { held },
                    array,
                    range: ALL,
                    keys: Keys::All,
                    clock: worker.clock,
                };
                let pull = worker.submit(now, task, &mut actions)?;
                worker.pulls.push((pull, array));
            }
        }
        self.worker_actions(id, actions)?;
        self.tell_worker(id, ClientEvent::Tick)?;
        if self.rng.random_bool(0.05) {
            self.push_nonsense(id);
        }
        Ok(())
    }

    /// A task has ended. After an overflow the worker pushes no row for the same clock. Returns
    /// true if so.
    pub fn submit_again(
        &mut self,
        id: WorkerId,
        handle: Handle,
        outcome: &TaskOutcome,
    ) -> Outcome<bool> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id) else {
            return Ok(false);
        };
        let Some(mut task) = worker.tasks.remove(&handle) else {
            return Ok(false);
        };
        let is_failed = matches!(outcome, Err(Refusal::Overflow { .. }));
        if worker.gone || !is_failed {
            return Ok(false);
        }
        (task.work, task.keys) = (Work::Push(Values::none()), Keys::none());
        let mut actions = Vec::new();
        worker.submit(now, task, &mut actions)?;
        self.worker_actions(id, actions)?;
        Ok(true)
    }

    /// A push of a number that is not finite (PS-7), past the client's own check.
    fn push_nonsense(&mut self, id: WorkerId) {
        let mut routes = self.registry.routing.routes().iter();
        let Some(route) = routes.find(|route| route.array == TRAINED) else {
            return;
        };
        let head = Peer::Server(route.head().unwrap());
        let mut values = vec![0.0; 2 * usize::try_from(route.range.len()).unwrap()];
        values[0] = f32::NAN;
        let push = Push {
            at: route.at(),
            worker: id,
            clock: self.workers[&id].clock,
            keys: Keys::All,
            values: values.into(),
        };
        // Not through the client, so that its answer does not end the client's own push.
        self.post(REGISTRY, head, Message::Push(push));
    }

    pub fn tell_worker(&mut self, id: WorkerId, event: ClientEvent) -> Outcome<()> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) else {
            return Ok(());
        };
        let mut actions = Vec::new();
        worker.client.handle(now, event, &mut actions);
        let timer = worker.client.next_timer();
        self.worker_actions(id, actions)?;
        self.at_timer(timer, 1_000, Due::WorkerTick(id));
        Ok(())
    }
}

/// The array whose rows are mirrored.
pub fn factored() -> Layout {
    Layout::dense(WIDE, Adam::default())
}

/// Gradients of the factored array, a matrix of 16 x 24 over all keys, in pieces that are the same
/// for all workers.
fn factors(rng: &mut ChaCha8Rng, clock: Clock) -> Vec<(KeyRange, Values)> {
    let rank = rng.random_range(1..3);
    let mut random = |count: usize| Vec::from_iter((0..count).map(|_| rng.random_range(-1.0..1.0)));
    let whole = Values::Factors(Factors::new(rank, &random(16 * rank), &random(24 * rank)));
    // Readers of all keys at once are sent rows where pieces were pushed.
    let cut = if clock.0.is_multiple_of(4) { KEYS / 2 } else { 0 };
    let pieces = [KeyRange::new(0, cut), KeyRange::new(cut, KEYS)].into_iter();
    let numbers = |range: KeyRange| WIDE * range.start as usize..WIDE * range.end as usize;
    let pieces = pieces.filter(|range| !range.is_empty());
    pieces.map(|range| (range, whole.slice(numbers(range)))).collect()
}

/// Keys of `range` and what the worker pushes for them.
fn numbers(
    rng: &mut ChaCha8Rng,
    check: &mut Checker,
    id: WorkerId,
    clock: Clock,
    array: ArrayId,
    range: KeyRange,
) -> (Keys, Vec<f32>) {
    let width = if array == COUNTED { COLUMNS } else { 2 };
    let some: Vec<Key> = (range.start..range.end).filter(|_| rng.random_bool(0.7)).collect();
    let is_all = rng.random_bool(0.3);
    let keys = if is_all { Keys::All } else { Keys::List(some.into()) };
    let mut values = Vec::new();
    for key in keys.iter(range) {
        for column in 0..width as u64 {
            values.push(match array == COUNTED {
                true if column == id.0 => (1u32 << clock.0) as f32,
                true => 0.0,
                false => trained::gradient(rng),
            });
        }
        if array == COUNTED {
            check.submitted(key, id, clock);
        }
    }
    (keys, values)
}
