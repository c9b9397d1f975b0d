//! Choice of the next job and its instance.

use super::{LOOK_PAST, MOST_BARRED, Pool, Waiting};
use crate::{InstanceId, JobId};

impl Pool {
    /// The next queued job and the instance to start it on, if there are both: first come, first
    /// served. A redundant copy goes only to an instance of which `may_copy_to` says so.
    pub(crate) fn start_next(
        &mut self,
        may_copy_to: impl Fn(JobId, InstanceId) -> bool,
    ) -> Option<(JobId, InstanceId)> {
        let instance = self.free().next()?;
        while let Some(head) = self.queue.front() {
            if !self.withdrawn.remove(&head.job) {
                break;
            }
            self.queue.pop_front();
        }
        let ahead_of = self.queue.front().map_or(u64::MAX, |head| head.ticket);
        if let Some(start) = self.start_copy(ahead_of, may_copy_to) {
            return Some(start);
        }
        let is_willing = |waiting: &Waiting| {
            !waiting.avoid.contains(&instance) && !self.withdrawn.contains(&waiting.job)
        };
        let willing = self.queue.iter().take(LOOK_PAST).position(is_willing).unwrap_or(0);
        let waiting = self.queue.remove(willing)?;
        self.occupy(instance.index);
        Some((waiting.job, instance))
    }

    /// The first copy in line before `ahead_of` that may go to an instance with a free slot.
    fn start_copy(
        &mut self,
        ahead_of: u64,
        may_copy_to: impl Fn(JobId, InstanceId) -> bool,
    ) -> Option<(JobId, InstanceId)> {
        let queries_wait = !self.queue.is_empty();
        let first = self.copies.iter().enumerate().take_while(|(_, copy)| copy.ticket < ahead_of);
        let mut copies = first.filter(|(_, copy)| !(copy.yields && queries_wait)).take(LOOK_PAST);
        let (position, job, instance) = copies.find_map(|(position, copy)| {
            let mut free = self.free().take(MOST_BARRED + 1);
            Some((position, copy.job, free.find(|instance| may_copy_to(copy.job, *instance))?))
        })?;
        self.copies.remove(position);
        self.occupy(instance.index);
        Some((job, instance))
    }

    pub(super) fn occupy(&mut self, index: u32) {
        let Some(state) = self.instances.get_mut(&index) else { return };
        self.available.remove(&(state.in_flight, state.idle_since, index));
        state.in_flight += 1;
        self.offer(index);
    }

    pub(super) fn offer(&mut self, index: u32) {
        let Some(state) = self.instances.get(&index) else { return };
        if state.serves() && state.in_flight < self.slots {
            self.available.insert((state.in_flight, state.idle_since, index));
        }
    }
}
