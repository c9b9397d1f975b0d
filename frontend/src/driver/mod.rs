//! Drives one model's engine: events from tasks in, actions out to tasks.
//!
//! The engine sits behind one mutex that is held for about a microsecond at a time; all IO,
//! encoding and decoding happen outside it. Time is tokio's, so that tests can pause it.

mod members;
mod setup;
mod waiting;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_config::repository::TensorSpec;
use parapet_frontend_core::{
    Action, Answer, BudgetView, ClassId, Engine, GroupView, HoldBackOverride, InstanceId,
    InstanceView, JobId, LatencyView, PoolId, QueryId, RedundancyOutcomes, Stats, Switches, Time,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use self::setup::class_labels;

use self::members::Member;
use self::work::Work;
use crate::coding::{Coder, JudgedOutput};
use crate::config::{HealthSettings, ModelConfig};
use crate::metrics::{Metrics, ModelMeters};
use crate::payload::{Input, Output};
use crate::traces::Trace;
use crate::upstream::Transport;

#[derive(Debug)]
pub struct Driver<T> {
    locked: Mutex<Locked>,
    transport: T,
    /// By class, for coded strategies.
    coders: Vec<Option<Arc<Coder>>>,
    /// Pools that answer the default class while no instance of the deployed model is up.
    stand_ins: Vec<PoolId>,
    outputs: Vec<TensorSpec>,
    /// The first output, if its kind is known: classes without a coder are judged by it.
    judged: Option<JudgedOutput>,
    pub meters: ModelMeters,
    started: Instant,
    /// Notified when an earlier timer is set than the one slept for.
    rearm: Notify,
    members: Mutex<FxHashMap<InstanceId, Member>>,
    health: HealthSettings,
    discovering: Mutex<BTreeSet<PoolId>>,
    stop: CancellationToken,
    /// Cancelled when it is replaced, or stopped.
    retired: CancellationToken,
}

type Actions = Vec<Action<Input, Output>>;

#[derive(Debug)]
struct Locked {
    engine: Engine<Input, Output>,
    actions: Actions,
    waiters: FxHashMap<QueryId, Waiter>,
    /// Dropping one withdraws its request.
    running: FxHashMap<JobId, oneshot::Sender<()>>,
    armed: Option<Time>,
    /// An instance of the deployed model was up once.
    was_up: bool,
}

#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Answer<Output>>,
    trace: Option<Trace>,
}

impl<T> Driver<T> {
    /// Ends health checks, and the timer once nothing needs it: all in flight has ended by then.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

/// A model that was replaced is asked for its metrics no more; its last counts are not lost.
impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let engine = &mut self.locked.get_mut().engine;
        self.meters.publish_totals(&engine.stats(), &outcomes(engine, self.meters.classes()));
    }
}

fn outcomes(engine: &Engine<Input, Output>, classes: usize) -> Vec<RedundancyOutcomes> {
    let classes = (0u8..).map(ClassId).take(classes);
    classes.map(|class| engine.core().redundancy_outcomes(class)).collect()
}

impl<T: Transport> Driver<T> {
    /// Starts the timer and the health checks; they end with [`stop`](Self::stop). `pools` names
    /// the instances that each pool begins with, which count as down until their first check.
    pub fn start(
        config: &ModelConfig,
        metrics: &Metrics,
        transport: T,
        pools: &[Vec<String>],
    ) -> Arc<Self> {
        let mut engine = Engine::new(&setup::core_config(config), setup::strategy(config));
        let labels = setup::class_labels(config);
        let meters = metrics.model(&config.entry.name, &labels, config.pool_labels());
        let mut instances = Vec::new();
        for (names, pool) in pools.iter().zip((0u8..).map(PoolId)) {
            instances.extend((0u32..).map(|index| InstanceId { pool, index }).zip(names));
        }
        let mut actions = Vec::new();
        for (instance, _) in &instances {
            engine.instance_up(Time::ZERO, *instance, false, &mut actions);
        }
        let stop = CancellationToken::new();
        let driver = Arc::new(Self {
            locked: Mutex::new(Locked {
                engine,
                actions,
                waiters: FxHashMap::default(),
                running: FxHashMap::default(),
                armed: None,
                was_up: false,
            }),
            transport,
            coders: config.classes.iter().map(|class| class.code.clone()).collect(),
            stand_ins: setup::stand_ins(config),
            judged: JudgedOutput::of(&config.entry, 0),
            outputs: config.entry.outputs.clone(),
            meters,
            started: Instant::now(),
            rearm: Notify::new(),
            members: Mutex::default(),
            health: config.settings.health.clone(),
            discovering: Mutex::default(),
            retired: stop.child_token(),
            stop,
        });
        tokio::spawn(Arc::clone(&driver).run_timers());
        for (instance, name) in instances {
            driver.watch(instance, name.clone());
        }
        driver
    }

    pub(crate) fn coder(&self, class: ClassId) -> Option<&Coder> {
        self.coders.get(usize::from(class.0))?.as_deref()
    }

    /// Returns true if an approximation in this class can have every output that is `wanted`:
    /// reconstructions have those that are coded.
    pub fn approximates(&self, class: ClassId, wanted: impl Fn(&str) -> bool) -> bool {
        let coder = self.coder(class);
        coder.is_none_or(|coder| coder.covers(&self.outputs, wanted))
    }

    /// The output by which approximations in this class are judged, if its kind is known.
    fn judged(&self, class: ClassId) -> Option<&JudgedOutput> {
        let coder = self.coder(class);
        coder.map_or(self.judged.as_ref(), |coder| coder.judged.as_ref())
    }

    pub fn stats(&self) -> Stats {
        self.locked.lock().engine.stats()
    }

    pub fn publish(&self) {
        let mut locked = self.locked.lock();
        let (stats, switches) = (locked.engine.stats(), locked.engine.switches());
        let outcomes = outcomes(&locked.engine, self.meters.classes());
        drop(locked);
        self.meters.publish_totals(&stats, &outcomes);
        self.meters.publish_state(&stats, &switches);
    }

    /// Returns true while an instance of the deployed model is up. Once that was so, instances that
    /// stand in for them are enough: approximate answers are better than none.
    pub fn is_ready(&self) -> bool {
        let locked = self.locked.lock();
        let core = locked.engine.core();
        let is_up = |pool: &PoolId| core.pool(*pool).is_some_and(|pool| pool.is_any_up());
        is_up(&PoolId::DEPLOYED) || (locked.was_up && self.stand_ins.iter().any(is_up))
    }

    /// Rows of a request that every instance takes, as far as they say.
    pub(crate) fn max_rows(&self) -> usize {
        self.transport.max_rows()
    }

    pub fn has_room(&self) -> bool {
        let mut locked = self.locked.lock();
        locked.engine.has_room(self.now())
    }

    fn now(&self) -> Time {
        Time::after_start(self.started.elapsed())
    }

    fn feed<R>(
        self: &Arc<Self>,
        event: impl FnOnce(&mut Engine<Input, Output>, Time, &mut Actions) -> R,
    ) -> R {
        self.feed_locked(|locked, now| event(&mut locked.engine, now, &mut locked.actions))
    }

    fn feed_locked<R>(self: &Arc<Self>, event: impl FnOnce(&mut Locked, Time) -> R) -> R {
        let (result, work) = self.feed_for_work(event);
        self.run(work);
        result
    }

    /// Returns the work that follows, which is yet to be done.
    fn feed_for_work<R>(&self, event: impl FnOnce(&mut Locked, Time) -> R) -> (R, Vec<Work>) {
        let mut locked = self.locked.lock();
        let result = event(&mut locked, self.now());
        let work = work::take(&mut locked);
        let next = locked.engine.next_timer();
        let earlier = next.is_some_and(|next| locked.armed.is_none_or(|armed| next < armed));
        if earlier {
            locked.armed = next;
        }
        drop(locked);
        if earlier {
            self.rearm.notify_one();
        }
        (result, work)
    }

    async fn run_timers(self: Arc<Self>) {
        loop {
            let next = {
                let mut locked = self.locked.lock();
                locked.armed = locked.engine.next_timer();
                locked.armed
            };
            if next.is_none() && self.stop.is_cancelled() {
                return;
            }
            let due = self.started + Duration::from_nanos(next.map_or(0, Time::as_nanos));
            tokio::select! {
                () = self.stop.cancelled(), if next.is_none() => return,
                () = self.rearm.notified() => {}
                () = sleep_until(due), if next.is_some() => {
                    self.feed(|engine, now, actions| engine.tick(now, actions));
                }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Since the driver's start.
    pub(crate) at: Duration,
    pub(crate) stats: Stats,
    pub(crate) switches: Switches,
    pub(crate) latency: LatencyView,
    pub(crate) outcomes: Vec<RedundancyOutcomes>,
    pub(crate) budgets: Vec<Option<BudgetView>>,
    /// With their names, and why the last health check failed, if it did.
    pub(crate) instances: Vec<(InstanceView, String, Option<String>)>,
    pub(crate) groups: Vec<GroupView>,
    pub(crate) decoded: Vec<GroupView>,
}

impl<T: Transport> Driver<T> {
    pub(crate) fn snapshot(&self, most_instances: usize, most_groups: usize) -> Snapshot {
        let classes = self.meters.classes();
        let mut locked = self.locked.lock();
        let (now, engine) = (self.now(), &mut locked.engine);
        let budgets = (0u8..).map(ClassId).take(classes);
        let views = engine.instances(now, most_instances);
        let mut snapshot = Snapshot {
            at: Duration::from_nanos(now.as_nanos()),
            stats: engine.stats(),
            switches: engine.switches(),
            latency: engine.latency(now),
            outcomes: outcomes(engine, classes),
            budgets: budgets.map(|class| engine.budget(class)).collect(),
            instances: Vec::new(),
            groups: engine.groups(most_groups),
            decoded: engine.decoded_groups(),
        };
        drop(locked);
        let members = self.members.lock();
        let named = |view: InstanceView| {
            let member = members.get(&view.id);
            let name = member.map_or("left", |member| &member.name).to_owned();
            let unready = member.and_then(|member| member.unready.lock().clone());
            (view, name, unready.map(|unready| unready.to_string()))
        };
        snapshot.instances = views.into_iter().map(named).collect();
        snapshot
    }

    pub(crate) fn set_redundancy(&self, on: bool) {
        self.locked.lock().engine.set_redundancy(on);
    }

    /// Sets the hold-back from now on; `None` restores the configured one.
    pub(crate) fn set_hold_back(&self, hold_back: Option<HoldBackOverride>) {
        self.locked.lock().engine.set_hold_back(hold_back);
    }

    pub(crate) fn switches(&self) -> Switches {
        self.locked.lock().engine.switches()
    }

    /// Puts all switches back to what is configured. Returns true if any stood otherwise.
    pub(crate) fn reset_switches(&self) -> bool {
        let mut locked = self.locked.lock();
        let before = locked.engine.switches();
        let Switches { redundancy, hold_back } = Switches::default();
        locked.engine.set_redundancy(redundancy);
        locked.engine.set_hold_back(hold_back);
        before != locked.engine.switches()
    }
}
