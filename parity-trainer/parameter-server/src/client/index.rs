//! Where a client's tasks stand, so that no message makes it look at all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::part::State;
use super::{Handle, Running, Work};
use crate::{ArrayId, Clock, KeyRange, RequestId};

/// A task's place in the line: by clock, then priority, then age.
pub(super) type Place = (Clock, u32, Handle);

/// Progress of a task when it was counted last.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    pulls_under_way: usize,
    delayed: usize,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Tasks with parts to be sent that wait for no other task.
    pub(super) ready_pushes: BTreeSet<Place>,
    pub(super) ready_pulls: BTreeSet<Place>,
    /// Pushes with parts that are not under way.
    unsent: BTreeSet<(ArrayId, Clock, Handle)>,
    /// Parts of pushes that have been sent.
    sent: BTreeMap<(ArrayId, Clock, KeyRange), Handle>,
    asked: BTreeMap<RequestId, Handle>,
    /// Tasks that wait for each task.
    waiting: BTreeMap<Handle, Vec<Handle>>,
    counted: BTreeMap<Handle, Counted>,
    total: Counted,
}

impl Index {
    /// `handle` waits for these tasks; how many.
    pub(super) fn wait<'a>(
        &mut self,
        handle: Handle,
        after: impl Iterator<Item = &'a Handle>,
    ) -> usize {
        let after: BTreeSet<Handle> = after.copied().collect();
        for &other in &after {
            self.waiting.entry(other).or_default().push(handle);
        }
        after.len()
    }

    /// Takes note of a task that is new or has changed.
    pub(super) fn note(&mut self, handle: Handle, running: &Running) {
        let Running {
            task,
            parts,
            waits_for,
        } = running;
        let is_pull = task.work == Work::Pull;
        let (mut is_ready, mut counted) = (false, Counted::default());
        for part in parts {
            match part.state {
                State::Ready => is_ready = true,
                State::Sent { .. } => counted.pulls_under_way += usize::from(is_pull),
                State::Delayed { .. } => counted.delayed += 1,
                State::Done { .. } => {}
            }
        }
        self.count(handle, counted);
        let place = (task.clock, task.priority, handle);
        let line = if is_pull {
            &mut self.ready_pulls
        } else {
            &mut self.ready_pushes
        };
        if is_ready && *waits_for == 0 {
            line.insert(place);
        } else {
            line.remove(&place);
        }
        if !is_pull {
            let slot = (task.array, task.clock, handle);
            if is_ready || counted.delayed > 0 {
                self.unsent.insert(slot);
            } else {
                self.unsent.remove(&slot);
            }
        }
    }

    fn count(&mut self, handle: Handle, new: Counted) {
        let old = self.counted.insert(handle, new).unwrap_or_default();
        self.total.pulls_under_way =
            self.total.pulls_under_way + new.pulls_under_way - old.pulls_under_way;
        self.total.delayed = self.total.delayed + new.delayed - old.delayed;
    }

    /// A part is on its way.
    pub(super) fn note_sent(
        &mut self,
        handle: Handle,
        running: &Running,
        part: KeyRange,
        request: Option<RequestId>,
    ) {
        match (&running.task.work, request) {
            (Work::Pull, Some(request)) => self.asked.insert(request, handle),
            (Work::Pull, None) => None,
            (Work::Push(_), _) => self
                .sent
                .insert((running.task.array, running.task.clock, part), handle),
        };
    }

    /// Forgets a task that has ended; who waited for it.
    pub(super) fn end(&mut self, handle: Handle, running: &Running) -> Vec<Handle> {
        self.forget_parts(handle, running);
        self.count(handle, Counted::default());
        self.counted.remove(&handle);
        let place = (running.task.clock, running.task.priority, handle);
        self.ready_pulls.remove(&place);
        self.ready_pushes.remove(&place);
        self.unsent
            .remove(&(running.task.array, running.task.clock, handle));
        self.waiting.remove(&handle).unwrap_or_default()
    }

    /// Forgets what was sent of a task.
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

    /// The push of which exactly this part was sent.
    pub(super) fn sent(&self, slot: (ArrayId, Clock, KeyRange)) -> Option<Handle> {
        self.sent.get(&slot).copied()
    }

    /// The pull with this request.
    pub(super) fn asked(&self, request: RequestId) -> Option<Handle> {
        self.asked.get(&request).copied()
    }

    pub(super) const fn has_delayed(&self) -> bool {
        self.total.delayed > 0
    }

    pub(super) const fn pulls_under_way(&self) -> usize {
        self.total.pulls_under_way
    }

    /// Pushes of `array` before `clock` of which something is not under way.
    pub(super) fn unsent_before(
        &self,
        array: ArrayId,
        clock: Clock,
    ) -> impl Iterator<Item = Handle> + '_ {
        let first = (array, Clock::default(), Handle(0));
        self.unsent
            .range(first..(array, clock, Handle(0)))
            .map(|&(.., handle)| handle)
    }
}
