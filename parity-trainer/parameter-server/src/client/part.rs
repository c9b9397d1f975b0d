//! The part of a task that goes to one shard.

use std::time::Duration;

use crate::{Clock, Epoch, KeyRange, RequestId, Values};

/// Times `resend` that a part is waited for while answers to others come: what is large and slow
/// should not be made slower by sending it twice.
const PATIENCE: u32 = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// To be sent, when it may be.
    Ready,
    /// The part is under way.
    Sent { at: Duration },
    /// Refused for now.
    Delayed { until: Duration },
    /// The part has been answered.
    Done {
        clock: Clock,
        own: Clock,
        values: Option<Values>,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) range: KeyRange,
    /// Under which it was sent last.
    pub(super) epoch: Option<Epoch>,
    /// Of a pull that was sent.
    pub(super) request: Option<RequestId>,
    pub(super) state: State,
}

impl Part {
    pub(super) const fn new(range: KeyRange) -> Self {
        Self {
            range,
            epoch: None,
            request: None,
            state: State::Ready,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done { .. })
    }

    pub(super) fn is_under_way(&self, epoch: Epoch) -> bool {
        matches!(self.state, State::Sent { .. }) && self.epoch == Some(epoch)
    }

    /// When it is to be sent again, if the last answer to anything came at `answered`.
    pub(super) fn due(&self, resend: Duration, answered: Duration) -> Option<Duration> {
        match self.state {
            State::Sent { at } => Some((at.max(answered) + resend).min(at + PATIENCE * resend)),
            State::Delayed { until } => Some(until),
            State::Ready | State::Done { .. } => None,
        }
    }
}
