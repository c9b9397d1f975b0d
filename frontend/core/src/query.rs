//! What the core knows of one accepted query.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::pool::Avoid;
use crate::{Failure, GroupKey, JobId, PoolId, QueryId, Time};

/// Where a query stands with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No answer yet.
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
    pub(crate) arrived: Time,
    pub(crate) deadline: Time,
    pub(crate) allow_approximate: bool,
    pub(crate) phase: Phase,
    /// Requests for it that are queued or in flight.
    pub(crate) jobs: SmallVec<[JobId; 2]>,
    pub(crate) attempts: u32,
    /// Instances that failed it.
    pub(crate) tried: Avoid,
    /// Set once every attempt failed and only the strategy can still answer.
    pub(crate) lost: Option<Failure>,
    pub(crate) late_timer: Option<Time>,
    pub(crate) give_up_timer: Option<Time>,
}

impl<I> Query<I> {
    pub(crate) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An attempt to get a query's own prediction.
    Query(QueryId),
    /// A parity query.
    Parity(crate::GroupId, crate::Row),
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
    pub(crate) timer: Option<Time>,
}
