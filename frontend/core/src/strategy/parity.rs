//! A group's parity query.

use std::sync::Arc;

use crate::{Core, JobId};

#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Parity<I, O> {
    /// The group is still open, or it is not due.
    Open,
    Encoding,
    /// It is queued or in flight; `input` allows one retry.
    InFlight {
        job: JobId,
        input: Arc<I>,
        retried: bool,
    },
    Output(Arc<O>),
    /// Shed, failed, or no longer needed.
    Dead,
}

impl<I, O> Parity<I, O> {
    /// Returns true if its output is there or may come.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self, Self::Dead)
    }

    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Encoding | Self::InFlight { .. })
    }

    pub(super) fn job(&self) -> Option<JobId> {
        if let Self::InFlight { job, .. } = self { Some(*job) } else { None }
    }

    pub(super) fn output(&self) -> Option<&Arc<O>> {
        if let Self::Output(output) = self { Some(output) } else { None }
    }

    /// Its input, and whether it was sent before, if `job` is what it is in flight as.
    pub(super) fn sent_as(&self, job: JobId) -> Option<(Arc<I>, bool)> {
        match self {
            Self::InFlight { job: current, input, retried } if *current == job => {
                Some((Arc::clone(input), *retried))
            }
            _ => None,
        }
    }

    /// Gives it up if it waits in line still. What is in flight is let end: a frozen instance that
    /// was freed of it would be given another one.
    pub(super) fn withdraw_queued(&mut self, core: &mut Core<I, O>) {
        if let Some(job) = self.job().filter(|&job| core.is_queued(job)) {
            core.withdraw_job(job, false);
            *self = Self::Dead;
        }
    }
}
