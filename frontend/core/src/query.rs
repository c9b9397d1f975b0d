//! Record of one accepted query.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::pool::Avoid;
use crate::{ClassId, Failure, FailureKind, GroupKey, InstanceId, JobId, PoolId, QueryId, Time};

/// Time before a deadline at which a reconstruction is tried, late or not. Decoding takes less.
const DECODE_MARGIN: Duration = Duration::from_millis(1);

/// A failure that its instance or its input may have caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnprovenFailure {
    pub(crate) instance: InstanceId,
    pub(crate) kind: FailureKind,
}

impl UnprovenFailure {
    /// The failure of a request at `instance`; `None` if an input cannot cause it.
    pub(crate) fn at(instance: InstanceId, kind: FailureKind) -> Option<Self> {
        kind.input_may_cause().then_some(Self { instance, kind })
    }

    /// The same of a failure that says where it was seen.
    pub(crate) fn of(failure: &Failure) -> Option<Self> {
        Self::at(failure.instance?, failure.kind)
    }
}

/// Where a query stands with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    /// Answered; its own request may still be awaited.
    Answered,
    /// The client went away before an answer.
    Abandoned,
}

#[derive(Debug)]
pub(crate) struct Query<I> {
    pub(crate) key: GroupKey,
    pub(crate) input: Arc<I>,
    pub(crate) bytes: usize,
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    pub(crate) allow_approximate: bool,
    pub(crate) may_join: bool,
    pub(crate) phase: Phase,
    /// Requests to the deployed model for it that are queued or in flight.
    pub(crate) jobs: SmallVec<[JobId; 2]>,
    pub(crate) attempts: u32,
    pub(crate) copies: u32,
    pub(crate) backup: Option<JobId>,
    pub(crate) tried: Avoid,
    /// Failures that its input may have caused; one for each attempt and copy at most.
    pub(crate) unproven: SmallVec<[UnprovenFailure; 2]>,
    /// Set once every attempt failed and only the strategy can still answer.
    pub(crate) lost: Option<Failure>,
    pub(crate) late_timer: Option<Time>,
    pub(crate) give_up_timer: Option<Time>,
    /// Answered with an approximation, its own request under way, whose time is to be counted.
    pub(crate) truth_awaited: bool,
}

impl<I> Query<I> {
    pub(crate) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// When an approximation is given, late or not, so that it still comes before the deadline.
    pub(crate) fn last_call(&self) -> Time {
        Time::from_nanos(self.deadline.as_nanos().saturating_sub(DECODE_MARGIN.as_nanos() as u64))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An attempt to get a query's own prediction.
    Query(QueryId),
    /// A redundant copy of one that is under way, at another instance.
    Copy(QueryId),
    Backup(QueryId),
    Parity(crate::GroupId, crate::Row),
}

impl Purpose {
    /// The class that pays for it, if it is redundant work.
    pub(crate) fn redundant_for(self) -> Option<ClassId> {
        match self {
            Self::Query(_) => None,
            Self::Copy(query) | Self::Backup(query) => Some(query.class()),
            Self::Parity(group, _) => Some(group.class()),
        }
    }

    /// Returns true if it must go to an instance apart from others, and waits in a line that holds
    /// no query up: a redundant copy, or a parity query that the deployed model is to answer.
    pub(crate) fn is_apart(self, pool: PoolId) -> bool {
        match self {
            Self::Copy(_) => true,
            Self::Parity(..) => pool == PoolId::DEPLOYED,
            Self::Query(_) | Self::Backup(_) => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Job<I> {
    pub(crate) purpose: Purpose,
    pub(crate) pool: PoolId,
    pub(crate) input: Arc<I>,
    /// Where it is in flight; `None` while it is queued.
    pub(crate) instance: Option<crate::InstanceId>,
    /// When it was sent; when it was submitted, while it is queued.
    pub(crate) sent: Time,
    pub(crate) submitted: Time,
    pub(crate) timer: Option<Time>,
    /// The failure of the request in whose place it was sent: a good answer proves it.
    pub(crate) unproven: Option<UnprovenFailure>,
    /// For a parity query at the deployed model.
    pub(crate) apart_from: Option<Box<AntiAffinity>>,
}

/// Queries whose instances a parity query at the deployed model avoids.
#[derive(Debug, Default)]
pub(crate) struct AntiAffinity {
    /// The members of its group, whatever requests they have.
    pub(crate) queries: SmallVec<[QueryId; 4]>,
    pub(crate) requests: SmallVec<[JobId; 4]>,
}
