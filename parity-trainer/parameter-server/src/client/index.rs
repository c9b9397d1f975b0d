//! Progress of a client's tasks, so that no message makes it look at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Handle, Running};
use crate::{ArrayId, Clock, Epoch, KeyRange, PullReply, RequestId};

/// Times `resend` that a part is waited for while answers to others come: what is large and slow
/// should not be made slower by sending it twice.
const PATIENCE: u32 = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Ready,
    Sent { at: Duration },
    Delayed { until: Duration },
    Done(Option<PullReply>),
}

/// The part of a task that goes to one shard.
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
        matches!(self.state, State::Done(_))
    }

    pub(super) fn is_under_way(&self, epoch: Epoch) -> bool {
        matches!(self.state, State::Sent { .. }) && self.epoch == Some(epoch)
    }

    /// When it is to be sent again, if the last answer to anything came at `answered`.
    pub(super) fn due(&self, resend: Duration, answered: Duration) -> Option<Duration> {
        match self.state {
            State::Sent { at } => Some((at.max(answered) + resend).min(at + PATIENCE * resend)),
            State::Delayed { until } => Some(until),
            State::Ready | State::Done(_) => None,
        }
    }
}

/// A task's place in the line: by clock, then age.
pub(super) type Place = (Clock, Handle);

/// Parts of a task, or of all tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) pulls_under_way: usize,
    pub(super) delayed: usize,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Tasks with parts to be sent.
    pub(super) ready_pushes: BTreeSet<Place>,
    pub(super) ready_pulls: BTreeSet<Place>,
    /// Pushes with parts that are not under way.
    unsent: BTreeSet<(ArrayId, Clock, Handle)>,
    /// Parts of pushes that have been sent.
    pub(super) sent: BTreeMap<(ArrayId, Clock, KeyRange), Handle>,
    /// Pulls that have been sent.
    pub(super) asked: BTreeMap<RequestId, Handle>,
    pub(super) total: Counted,
}

fn place<T: Ord>(set: &mut BTreeSet<T>, element: T, is_in: bool) {
    if is_in {
        set.insert(element);
    } else {
        set.remove(&element);
    }
}

impl Index {
    pub(super) fn note(&mut self, handle: Handle, running: &mut Running) {
        let is_pull = running.is_pull();
        let (mut is_ready, mut new) = (false, Counted::default());
        for part in &running.parts {
            match part.state {
                State::Ready => is_ready = true,
                State::Sent { .. } => new.pulls_under_way += usize::from(is_pull),
                State::Delayed { .. } => new.delayed += 1,
                State::Done(_) => {}
            }
        }
        let old = std::mem::replace(&mut running.counted, new);
        self.total.pulls_under_way += new.pulls_under_way;
        self.total.pulls_under_way -= old.pulls_under_way;
        self.total.delayed += new.delayed;
        self.total.delayed -= old.delayed;
        let (array, clock) = (running.task.array, running.task.clock);
        if is_pull {
            place(&mut self.ready_pulls, (clock, handle), is_ready);
        } else {
            place(&mut self.ready_pushes, (clock, handle), is_ready);
            let is_unsent = is_ready || new.delayed > 0;
            place(&mut self.unsent, (array, clock, handle), is_unsent);
        }
    }

    pub(super) fn note_sent(&mut self, handle: Handle, running: &Running, part: &Part) {
        let (array, clock) = (running.task.array, running.task.clock);
        if !running.is_pull() {
            self.sent.insert((array, clock, part.range), handle);
        } else if let Some(request) = part.request {
            self.asked.insert(request, handle);
        }
    }

    pub(super) fn end(&mut self, handle: Handle, running: &mut Running) {
        self.forget_parts(handle, running);
        running.parts.clear();
        self.note(handle, running);
    }

    pub(super) fn forget_parts(&mut self, handle: Handle, running: &Running) {
        for part in &running.parts {
            if let Some(request) = part.request {
                self.asked.remove(&request);
            }
            let slot = (running.task.array, running.task.clock, part.range);
            if self.sent.get(&slot) == Some(&handle) {
                self.sent.remove(&slot);
            }
        }
    }

    /// Pushes of `array` before `clock` of which something is not under way.
    pub(super) fn unsent_before(
        &self,
        array: ArrayId,
        clock: Clock,
    ) -> impl Iterator<Item = Handle> + '_ {
        let first = (array, Clock::default(), Handle(0));
        let earlier = self.unsent.range(first..(array, clock, Handle(0)));
        earlier.map(|&(.., handle)| handle)
    }
}
