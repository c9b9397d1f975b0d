//! Pending timers, ordered by time. A `BTreeSet` instead of a heap: cancelled timers leave at once,
//! so memory follows the queries in flight and not the request rate times the longest deadline.

use std::collections::BTreeSet;

use crate::{GroupId, InstanceId, JobId, QueryId, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The query must have been answered.
    Deadline(QueryId),
    /// The strategy asked to look at this query: it is late.
    Late(QueryId),
    /// The strategy asked to look at this group: complete it with fillers.
    Flush(GroupId),
    /// End of the wait for an answered query's own prediction.
    GiveUp(QueryId),
    /// A parity query took too long.
    Job(JobId),
    /// An ejected instance is let back in.
    Readmit(InstanceId),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    pending: BTreeSet<(Time, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Time, timer: Timer) {
        self.pending.insert((at, timer));
    }

    /// Takes back a timer; nothing without a time.
    pub(crate) fn cancel(&mut self, at: impl Into<Option<Time>>, timer: Timer) {
        if let Some(at) = at.into() {
            self.pending.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.pending.first().map(|&(at, _)| at)
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now { None } else { self.pending.pop_first().map(|(_, timer)| timer) }
    }
}
