//! Drives one model's engine: events from tasks in, actions out to tasks.
//!
//! The engine sits behind one mutex that is held for about a microsecond at a time; all IO,
//! encoding and decoding happen outside it. Time is tokio's, so that tests can pause it.

mod health;
mod live;
mod members;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_config::repository::TensorSpec;
use parapet_encoder::OutputDomain;
use parapet_frontend_core::{
    Action, Answer, ClassId, Engine, InstanceId, JobId, PoolId, QueryId, RedundancyOutcomes, Stats,
    Time,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::live::Snapshot;
use self::members::Member;
use crate::config::HealthSettings;
use crate::metrics::ModelMeters;
use crate::model::coding::Coder;
use crate::model::judged::JudgedOutput;
use crate::payload::{Input, Output};
use crate::traces::Trace;
use crate::upstream::Transport;

/// Parts of a driver.
#[derive(Debug)]
pub struct Parts<T> {
    pub engine: Engine<Input, Output>,
    pub transport: T,
    /// By class, for coded strategies.
    pub coders: Vec<Option<Coder>>,
    pub outputs: Vec<TensorSpec>,
    pub meters: ModelMeters,
    /// Names of the instances that each pool begins with.
    pub pools: Vec<Vec<String>>,
    pub health: HealthSettings,
}

/// One model's engine with its surroundings.
#[derive(Debug)]
pub struct Driver<T> {
    locked: Mutex<Locked>,
    transport: T,
    coders: Vec<Option<Coder>>,
    outputs: Vec<TensorSpec>,
    /// The first of them, if it has class scores: classes without a coder are judged by it.
    judged: Option<JudgedOutput>,
    meters: ModelMeters,
    started: Instant,
    /// An earlier timer than the one slept for was set.
    rearm: Notify,
    members: Mutex<FxHashMap<InstanceId, Member>>,
    health: HealthSettings,
    /// Pools whose instances are discovered.
    discovering: Mutex<BTreeSet<PoolId>>,
    stop: CancellationToken,
    /// It is replaced, or stopped.
    retired: CancellationToken,
}

#[derive(Debug)]
struct Locked {
    engine: Engine<Input, Output>,
    actions: Vec<Action<Input, Output>>,
    waiters: FxHashMap<QueryId, Waiter>,
    /// Dropping one withdraws its request.
    running: FxHashMap<JobId, oneshot::Sender<()>>,
    /// The timer slept for.
    armed: Option<Time>,
}

impl<T> Driver<T> {
    /// Ends the health checks, and the timer once nothing waits for it: what is in flight has its
    /// end by then.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

/// A model that was replaced is asked for its metrics no more; what it came to after it was asked
/// last is not lost.
impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        let (stats, redundancy_outcomes) = totals(self.locked.get_mut(), &self.meters);
        self.meters.publish_totals(&stats, &redundancy_outcomes);
    }
}

fn totals(locked: &mut Locked, meters: &ModelMeters) -> (Stats, Vec<RedundancyOutcomes>) {
    let stats = locked.engine.stats();
    let classes = (0u8..).map(ClassId).take(meters.classes());
    (
        stats,
        classes
            .map(|class| locked.engine.core().redundancy_outcomes(class))
            .collect(),
    )
}

impl<T: Transport> Driver<T> {
    /// Starts the timer and the health checks; they end with [`stop`](Self::stop). Every instance
    /// counts as down until its first check.
    pub fn start(parts: Parts<T>) -> Arc<Self> {
        let Parts {
            mut engine,
            transport,
            coders,
            outputs,
            meters,
            pools,
            health,
        } = parts;
        let instances: Vec<(InstanceId, String)> = pools
            .iter()
            .zip((0u8..).map(PoolId))
            .flat_map(|(names, pool)| {
                names
                    .iter()
                    .zip(0u32..)
                    .map(move |(name, index)| (InstanceId { pool, index }, name.clone()))
            })
            .collect();
        let mut actions = Vec::new();
        for (instance, _) in &instances {
            engine.instance_up(Time::ZERO, *instance, false, &mut actions);
        }
        let stop = CancellationToken::new();
        let retired = stop.child_token();
        let driver = Arc::new(Self {
            locked: Mutex::new(Locked {
                engine,
                actions,
                waiters: FxHashMap::default(),
                running: FxHashMap::default(),
                armed: None,
            }),
            transport,
            coders,
            judged: outputs
                .first()
                .and_then(|spec| JudgedOutput::of(spec).ok()?),
            outputs,
            meters,
            started: Instant::now(),
            rearm: Notify::new(),
            members: Mutex::default(),
            health,
            discovering: Mutex::default(),
            stop,
            retired,
        });
        tokio::spawn(Arc::clone(&driver).run_timers());
        for (instance, name) in instances {
            driver.watch(instance, name);
        }
        driver
    }

    pub fn meters(&self) -> &ModelMeters {
        &self.meters
    }

    /// The code's short name, if this class is coded.
    pub fn code_label(&self, class: ClassId) -> Option<&str> {
        self.coder(class).map(Coder::label)
    }

    /// Returns the scale of this class's reconstructions.
    pub fn output_domain(&self, class: ClassId) -> OutputDomain {
        self.coder(class)
            .map_or(OutputDomain::Deployed, Coder::output_domain)
    }

    /// Returns true if the confidence of this class's reconstructions is a measured agreement.
    pub fn is_calibrated(&self, class: ClassId) -> bool {
        self.coder(class).is_some_and(Coder::is_calibrated)
    }

    /// Returns true if an approximation in this class can have every output that is `wanted`:
    /// reconstructions have those that are coded.
    pub fn approximates(&self, class: ClassId, wanted: impl Fn(&str) -> bool) -> bool {
        self.coder(class)
            .is_none_or(|coder| coder.covers(&self.outputs, wanted))
    }

    /// The output by which approximations in this class are judged, if it has class scores.
    fn judged(&self, class: ClassId) -> Option<&JudgedOutput> {
        self.coder(class)
            .map_or(self.judged.as_ref(), Coder::judged)
    }

    fn coder(&self, class: ClassId) -> Option<&Coder> {
        self.coders
            .get(usize::from(class.0))
            .and_then(Option::as_ref)
    }

    /// The engine's totals and gauges.
    pub fn stats(&self) -> Stats {
        self.locked.lock().engine.stats()
    }

    /// Brings the model's meters up to date with the engine's totals.
    pub fn publish(&self) {
        let (stats, switches, redundancy_outcomes) = {
            let mut locked = self.locked.lock();
            let switches = locked.engine.switches();
            let (stats, redundancy_outcomes) = totals(&mut locked, &self.meters);
            (stats, switches, redundancy_outcomes)
        };
        self.meters.publish_totals(&stats, &redundancy_outcomes);
        self.meters.publish_state(&stats, &switches);
    }

    /// Returns true if any instance of the deployed model is up.
    pub fn is_ready(&self) -> bool {
        let locked = self.locked.lock();
        locked
            .engine
            .core()
            .pool(PoolId::DEPLOYED)
            .is_some_and(|pool| pool.is_any_up())
    }

    /// Returns true if a query that came now would be taken.
    pub fn has_room(&self) -> bool {
        let mut locked = self.locked.lock();
        locked.engine.has_room(self.now())
    }

    fn now(&self) -> Time {
        Time::after_start(self.started.elapsed())
    }

    /// Hands the engine an event and does what it says.
    fn feed<R>(self: &Arc<Self>, event: impl FnOnce(&mut Locked, Time) -> R) -> R {
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
        self.run(work);
        result
    }

    async fn run_timers(self: Arc<Self>) {
        loop {
            let next = {
                let mut locked = self.locked.lock();
                locked.armed = locked.engine.next_timer();
                locked.armed
            };
            let due = async {
                match next {
                    Some(at) => {
                        tokio::time::sleep_until(self.started + Duration::from_nanos(at.as_nanos()))
                            .await
                    }
                    None => std::future::pending().await,
                }
            };
            if next.is_none() && self.stop.is_cancelled() {
                return;
            }
            tokio::select! {
                () = self.stop.cancelled(), if next.is_none() => return,
                () = self.rearm.notified() => {}
                () = due => self.feed(|locked, now| locked.engine.tick(now, &mut locked.actions)),
            }
        }
    }
}

/// Receiver of a query's answer.
#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Answer<Output>>,
    trace: Option<Trace>,
}

/// Abandons its query when dropped before the answer.
struct Waiting<'a, T: Transport> {
    driver: &'a Arc<Driver<T>>,
    query: QueryId,
    answered: bool,
}

impl<T: Transport> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if !self.answered {
            self.driver.feed(|locked, now| {
                locked.waiters.remove(&self.query);
                locked
                    .engine
                    .abandoned(now, self.query, &mut locked.actions);
            });
        }
    }
}
