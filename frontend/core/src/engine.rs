//! The engine: events in, actions out.

mod attempts;
mod views;

use std::sync::Arc;

use smallvec::SmallVec;
use thiserror::Error;

use crate::pool::Avoid;
use crate::query::{Phase, Purpose, Query};
use crate::stats::Fate;
use crate::timers::Timer;
use crate::{
    Action, Answer, AttemptResult, ByClass, ClassId, Core, CoreConfig, Failure, GroupId, GroupKey,
    InstanceId, JobId, PoolId, QueryId, Row, Switches, Time,
};

/// A query as the driver hands it in.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Arrival<I> {
    pub input: Arc<I>,
    /// Memory that the input holds, counted while a strategy keeps it after the answer.
    pub bytes: usize,
    pub key: GroupKey,
    pub deadline: Time,
    /// True if its client takes an approximation: a reconstruction, or a backup model's prediction.
    pub allow_approximate: bool,
    /// False if it is asked in a way that other models do not know: then no group has it.
    pub may_join: bool,
    pub class: ClassId,
}

/// Reason why a query was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejected {
    /// A bound is reached; try again later.
    #[error("too many queries in flight")]
    Overloaded,
    /// Its deadline has passed.
    #[error("the deadline has already passed")]
    DeadlinePassed,
}

/// A served model's state machine: [`Core`] and a `Strategy`.
///
/// Each method takes the time and appends what to do to `actions`. Time must not go backwards.
#[derive(Debug)]
pub struct Engine<I, O> {
    core: Core<I, O>,
    strategies: ByClass<I, O>,
    switches: Switches,
}

impl<I, O> Engine<I, O> {
    /// An engine with all instances taken to be up.
    pub fn new(config: &CoreConfig, strategies: impl Into<ByClass<I, O>>) -> Self {
        Self {
            core: Core::new(config),
            strategies: strategies.into(),
            switches: Switches::default(),
        }
    }

    /// Takes a query. Its own request is the first thing appended (CG-3).
    ///
    /// # Errors
    /// [`Rejected`] when a bound is reached or its deadline has passed; then nothing is to be done.
    pub fn arrive(
        &mut self,
        now: Time,
        arrival: Arrival<I>,
        actions: &mut Vec<Action<I, O>>,
    ) -> Result<QueryId, Rejected> {
        self.core.now = now;
        if arrival.deadline <= now {
            return Err(Rejected::DeadlinePassed);
        }
        if !self.core.has_room() {
            self.core.refuse();
            return Err(Rejected::Overloaded);
        }
        let redundancy = self.switches.redundancy;
        let avoid = match redundancy {
            true => self.strategies.of(arrival.class).avoid(&self.core, arrival.key),
            false => Avoid::new(),
        };
        let query = self.core.accept(
            arrival.class,
            Query {
                key: arrival.key,
                input: arrival.input,
                bytes: arrival.bytes,
                arrived: now,
                deadline: arrival.deadline,
                allow_approximate: arrival.allow_approximate,
                may_join: arrival.may_join,
                phase: Phase::Waiting,
                jobs: SmallVec::new(),
                attempts: 0,
                copies: 0,
                backup: None,
                tried: Avoid::new(),
                unproven: SmallVec::new(),
                lost: None,
                late_timer: None,
                give_up_timer: None,
                truth_awaited: false,
            },
        );
        self.core.dispatch(query, avoid);
        // A strategy that has never heard of a query does nothing for it.
        if redundancy {
            self.strategies.of_mut(arrival.class).on_accepted(&mut self.core, query);
        }
        self.flush_actions(actions);
        Ok(query)
    }

    /// An upstream request ended. Unknown and withdrawn requests are ignored.
    pub fn finished(
        &mut self,
        now: Time,
        job: JobId,
        outcome: AttemptResult<O>,
        actions: &mut Vec<Action<I, O>>,
    ) {
        self.core.now = now;
        let failure = outcome.as_ref().err().map(|failure| failure.kind);
        if let Some(finished) = self.core.finish_job(job, failure) {
            let outcome =
                outcome.map_err(|failure| Failure { instance: finished.instance, ..failure });
            if let (Some(class), Some(_)) = (finished.purpose.redundant_for(), failure) {
                self.core.count(class, Fate::Failed);
            }
            match finished.purpose {
                Purpose::Query(query) => self.attempt_ended(query, outcome, false),
                Purpose::Copy(query) => self.attempt_ended(query, outcome, true),
                Purpose::Backup(query) => {
                    let strategy = self.strategies.of_mut(query.class());
                    strategy.on_backup(&mut self.core, query, outcome.map(Arc::new));
                    self.settle(query);
                    self.fail_if_hopeless(query);
                }
                Purpose::Parity(group, row) => {
                    let strategy = self.strategies.of_mut(group.class());
                    if outcome.is_ok() {
                        strategy.on_parity_took(now.since(finished.submitted));
                    }
                    strategy.on_parity(&mut self.core, group, row, job, outcome.map(Arc::new));
                }
            }
        }
        for query in self.core.shed() {
            self.shed(query);
        }
        self.flush_actions(actions);
    }

    /// A parity query was computed; `None` when it could not be.
    pub fn encoded(
        &mut self,
        now: Time,
        group: GroupId,
        row: Row,
        parity: Option<Arc<I>>,
        actions: &mut Vec<Action<I, O>>,
    ) {
        self.core.now = now;
        self.strategies.of_mut(group.class()).on_encoded(&mut self.core, group, row, parity);
        self.flush_actions(actions);
    }

    /// A reconstruction was computed; `None` when it could not be, or is not finite.
    pub fn reconstructed(
        &mut self,
        now: Time,
        query: QueryId,
        output: Option<O>,
        actions: &mut Vec<Action<I, O>>,
    ) {
        self.core.now = now;
        let answered = match output.map(Arc::new) {
            // CG-2: if the exact prediction came while this was computed, the query waits no more.
            Some(output) if self.core.is_waiting(query) => {
                self.core.answer(query, Answer::Reconstructed(Arc::clone(&output)));
                Some(output)
            }
            _ => {
                self.core.stats.reconstructions_dropped += 1;
                None
            }
        };
        self.strategies.of_mut(query.class()).on_reconstructed(&mut self.core, query, answered);
        self.settle(query);
        self.fail_if_hopeless(query);
        self.flush_actions(actions);
    }

    /// The client went away. Ignored when it has been answered.
    pub fn abandoned(&mut self, now: Time, query: QueryId, actions: &mut Vec<Action<I, O>>) {
        self.core.now = now;
        if self.core.abandon(query) {
            self.close(query);
        }
        self.flush_actions(actions);
    }

    /// A health check, or a probe asked for, found the instance up or down. Queries that wait for
    /// one that is down now are sent elsewhere, too, as long as there are free slots and retries
    /// are allowed; what comes first counts.
    pub fn instance_up(
        &mut self,
        now: Time,
        instance: InstanceId,
        up: bool,
        actions: &mut Vec<Action<I, O>>,
    ) {
        self.core.now = now;
        self.core.set_instance_up(instance, up);
        // Not only when that is news: a request that failed may have told before the check did.
        if !up {
            for query in self.core.waiting_only_at(instance) {
                self.try_elsewhere(query, instance);
            }
        }
        self.flush_actions(actions);
    }

    /// A new instance for `pool`: down, and so without requests, until
    /// [`instance_up`](Self::instance_up) says it is well. `None` for a pool that is not there.
    pub fn instance_joined(&mut self, pool: PoolId) -> Option<InstanceId> {
        self.core.join(pool)
    }

    /// An instance is to get no more requests; [`Action::Left`] says when it has none left.
    pub fn instance_left(
        &mut self,
        now: Time,
        instance: InstanceId,
        actions: &mut Vec<Action<I, O>>,
    ) {
        self.core.now = now;
        self.core.leave(instance);
        self.flush_actions(actions);
    }

    /// Handles the timers that are due.
    pub fn tick(&mut self, now: Time, actions: &mut Vec<Action<I, O>>) {
        self.core.now = now;
        while let Some(timer) = self.core.timers.pop_due(now) {
            match timer {
                Timer::Deadline(query) => self.deadline(query),
                Timer::Late(query) => {
                    self.core.late_timer_fired(query);
                    self.strategies.of_mut(query.class()).on_late(&mut self.core, query);
                    self.settle(query);
                }
                Timer::Flush(group) => {
                    self.strategies.of_mut(group.class()).on_flush(&mut self.core, group);
                }
                Timer::GiveUp(query) => {
                    self.core.forget(query, true);
                    self.strategies.of_mut(query.class()).on_closed(&mut self.core, query);
                }
                Timer::Job(job) => self.job_expired(job),
                Timer::Readmit(instance) => self.core.readmit(instance),
            }
        }
        self.flush_actions(actions);
    }

    /// When [`tick`](Self::tick) is to be called next.
    pub fn next_timer(&self) -> Option<Time> {
        self.core.timers.next()
    }

    /// Returns true if a query that came now would be taken; so that one that is not can be turned
    /// away before its body is read. That counts as refused.
    pub fn has_room(&mut self, now: Time) -> bool {
        self.core.now = now;
        let room = self.core.has_room();
        if !room {
            self.core.refuse();
        }
        room
    }

    /// The shared state, to look at.
    pub fn core(&self) -> &Core<I, O> {
        &self.core
    }

    fn flush_actions(&mut self, actions: &mut Vec<Action<I, O>>) {
        actions.append(&mut self.core.actions);
    }
}
