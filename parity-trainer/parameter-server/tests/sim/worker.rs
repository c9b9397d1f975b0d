//! Workers: pull, think, push, for each clock.

use parapet_parameter_server::{
    ArrayId, Client, ClientArray, ClientConfig, ClientEvent, Clock, Handle, KeyRange, Keys,
    Message, Peer, Push, Refusal, ShardRef, Task, TaskOutcome, Values, Work, WorkerId,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{COLUMNS, COUNTED, Checker, Due, KEYS, LAST, Simulation, TRAINED, trained};

pub struct Worker {
    pub id: WorkerId,
    pub joined: Clock,
    /// The iteration it is in.
    pub clock: Clock,
    pub client: Client,
    pub pulls: Vec<(Handle, ArrayId)>,
    /// The tasks that have not ended.
    pub tasks: BTreeMap<Handle, Task>,
    pub gone: bool,
}

impl Worker {
    pub fn has_finished(&self) -> bool {
        self.gone || (self.clock > LAST && self.client.unfinished() == 0)
    }

    /// Takes note of a task's end. Whether the worker can go on.
    pub fn finished(&mut self, handle: Handle, outcome: &TaskOutcome) -> bool {
        assert!(
            matches!(outcome, TaskOutcome::Pushed | TaskOutcome::Pulled { .. }) || self.gone,
            "{} failed: {outcome:?}",
            self.id
        );
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
            resend: Duration::from_millis(12),
            retry: Duration::from_millis(12),
            max_pulls: self.rng.random_range(1..8),
            max_tasks: 64,
        };
        let array = |width| ClientArray {
            width,
            consistency: self.model,
        };
        let client = Client::new(id, config, [(COUNTED, array(COLUMNS)), (TRAINED, array(2))]);
        let worker = Worker {
            id,
            joined,
            clock: joined,
            client,
            pulls: Vec::new(),
            tasks: BTreeMap::new(),
            gone: false,
        };
        self.workers.insert(id, worker);
        self.registry.members.push((id, joined));
        self.registry.members_version += 1;
        self.report(|leading| leading.hears_of(id));
        self.at(5_000, Due::Proceed(id));
    }

    /// Pushes the clock of the iteration, and pulls for the next.
    pub fn proceed(&mut self, id: WorkerId) -> Result<(), String> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) else {
            return Ok(());
        };
        let (mut actions, mut pushes) = (Vec::new(), Vec::new());
        let clock = worker.clock;
        if clock > worker.joined {
            for array in [COUNTED, TRAINED] {
                let cut = self.rng.random_range(0..KEYS);
                for range in [KeyRange::new(0, cut), KeyRange::new(cut, KEYS)]
                    .into_iter()
                    .filter(|range| !range.is_empty())
                {
                    let (keys, values) =
                        numbers(&mut self.rng, &mut self.check, id, clock, array, range);
                    let (work, priority) = (
                        Work::Push(Values::from(values)),
                        self.rng.random_range(0..3),
                    );
                    let task = Task {
                        work,
                        array,
                        range,
                        keys,
                        clock,
                        after: Vec::new(),
                        priority,
                    };
                    let submitted = worker.client.submit(now, task.clone(), &mut actions);
                    let push = submitted.map_err(|error| error.to_string())?;
                    worker.tasks.insert(push, task);
                    pushes.push(push);
                }
            }
        }
        worker.clock = clock.next();
        if worker.clock <= LAST {
            let clock = worker.clock;
            worker.pulls.clear();
            self.check.pulls(id);
            let waits = self.rng.random_bool(0.3);
            for array in [COUNTED, TRAINED] {
                let task = Task {
                    work: Work::Pull,
                    array,
                    range: KeyRange::new(0, KEYS),
                    keys: Keys::All,
                    clock,
                    after: if waits { pushes.clone() } else { Vec::new() },
                    priority: 0,
                };
                let submitted = worker.client.submit(now, task.clone(), &mut actions);
                let pull = submitted.map_err(|error| error.to_string())?;
                worker.tasks.insert(pull, task);
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

    /// A task has ended. After an overflow the worker pushes no row for the same clock, and what
    /// waited for the push is asked anew. Returns true if so.
    pub fn submit_again(
        &mut self,
        id: WorkerId,
        handle: Handle,
        outcome: &TaskOutcome,
    ) -> Result<bool, String> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id) else {
            return Ok(false);
        };
        let Some(mut task) = worker.tasks.remove(&handle) else {
            return Ok(false);
        };
        let is_failed = matches!(
            outcome,
            TaskOutcome::Refused(Refusal::Overflow { .. }) | TaskOutcome::DependencyFailed(_)
        );
        if worker.gone || !is_failed {
            return Ok(false);
        }
        if let Work::Push(values) = &mut task.work {
            *values = Values::none();
            task.keys = Keys::none();
        }
        task.after.clear();
        let mut actions = Vec::new();
        let submitted = worker.client.submit(now, task.clone(), &mut actions);
        let again = submitted.map_err(|error| error.to_string())?;
        worker.tasks.insert(again, task);
        worker
            .pulls
            .iter_mut()
            .filter(|(pull, _)| *pull == handle)
            .for_each(|(pull, _)| *pull = again);
        self.worker_actions(id, actions)?;
        Ok(true)
    }

    /// A push of a number that is not finite (PS-7), past the client's own check.
    fn push_nonsense(&mut self, id: WorkerId) {
        let Some(route) = self
            .registry
            .routing
            .routes()
            .iter()
            .find(|route| route.array == TRAINED)
        else {
            return;
        };
        let (at, head) = (
            ShardRef {
                array: route.array,
                range: route.range,
                epoch: route.epoch,
            },
            route.head().unwrap(),
        );
        let rows = usize::try_from(at.range.len()).unwrap();
        let mut values = vec![0.0; 2 * rows];
        values[0] = f32::NAN;
        let clock = self.workers[&id].clock;
        let push = Push {
            at,
            worker: id,
            clock,
            keys: Keys::All,
            values: Values::from(values),
        };
        // Not through the client, so that its answer does not end the client's own push.
        self.post(
            Peer::Server(super::NodeId(u64::MAX)),
            Peer::Server(head),
            Message::Push(push),
        );
    }

    pub fn tell_worker(&mut self, id: WorkerId, event: ClientEvent) -> Result<(), String> {
        let now = self.time();
        let Some(worker) = self.workers.get_mut(&id).filter(|worker| !worker.gone) else {
            return Ok(());
        };
        let mut actions = Vec::new();
        worker.client.handle(now, event, &mut actions);
        let timer = worker.client.next_timer();
        self.worker_actions(id, actions)?;
        if let Some(timer) = timer {
            let delay = u64::try_from(timer.as_micros())
                .unwrap()
                .saturating_sub(self.now)
                .max(1_000);
            self.at(delay, Due::WorkerTick(id));
        }
        Ok(())
    }
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
    let keys: Vec<u64> = (range.start..range.end)
        .filter(|_| rng.random_bool(0.7))
        .collect();
    let keys = if rng.random_bool(0.3) {
        Keys::All
    } else {
        Keys::List(keys.into())
    };
    let mut values = Vec::new();
    for key in keys.iter(range) {
        for column in 0..width {
            let own = column as u64 == id.0;
            values.push(match array == COUNTED {
                true if own => (1u32 << clock.0) as f32,
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
