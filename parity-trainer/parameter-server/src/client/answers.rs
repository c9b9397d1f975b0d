//! Progress of tasks by the answers that arrive.

use std::time::Duration;

use super::index::{Part, State};
use super::{Client, ClientAction, Fresh, Handle, Running, TaskOutcome};
use crate::{Clock, PullReply, PushAck, Refused, Request, Shared, Values};

impl Client {
    pub(super) fn pushed(&mut self, now: Duration, ack: PushAck, actions: &mut Vec<ClientAction>) {
        if ack.worker != self.worker {
            return;
        }
        self.answered = now;
        let (array, clock, own) = (ack.at.array, ack.clock, ack.clock);
        // Refused ones may have waited for this one; an answer may be older than a cut.
        let sent = self.index.sent.get(&(array, clock, ack.at.range));
        let handles: Vec<Handle> = match sent.filter(|_| self.index.total.delayed == 0) {
            Some(&handle) => vec![handle],
            None => self.tasks.keys().copied().collect(),
        };
        for handle in handles {
            let Some(running) = self.tasks.get_mut(&handle) else {
                continue;
            };
            if running.is_pull() || running.task.array != array {
                continue;
            }
            let is_acknowledged = running.task.clock == clock;
            let mut changed = false;
            for part in &mut running.parts {
                if !ack.at.range.covers(part.range) {
                    continue;
                }
                if is_acknowledged {
                    let values = None;
                    part.state = State::Done { clock, own, values };
                    changed = true;
                } else if matches!(part.state, State::Delayed { .. }) {
                    part.state = State::Ready;
                    changed = true;
                }
            }
            if changed {
                self.note(handle);
                self.finish(handle, actions);
            }
        }
    }

    pub(super) fn pulled(
        &mut self,
        now: Duration,
        reply: PullReply,
        actions: &mut Vec<ClientAction>,
    ) {
        let (at, clock, own) = (reply.at, reply.clock, reply.own);
        let width = self.arrays.get(&at.array).map(|array| array.width);
        let rows = reply.keys.len(at.range);
        if width.is_none_or(|width| reply.values.check(rows, width).is_err()) {
            return;
        }
        self.answered = now;
        let Some(request) = reply.request else {
            return self.refresh(reply);
        };
        let Some(&handle) = self.index.asked.get(&request) else {
            return;
        };
        let Some(running) = self.tasks.get_mut(&handle) else {
            return;
        };
        let is_it = |part: &&mut Part| part.request == Some(request) && part.range == at.range;
        if let Some(part) = running.parts.iter_mut().find(is_it) {
            let values = Some(reply.values);
            part.state = State::Done { clock, own, values };
            self.note(handle);
            self.finish(handle, actions);
        }
    }

    /// Keeps rows that a server sent of its own accord: one reply for each shard that is read, so
    /// that their number is bounded by the table's.
    fn refresh(&mut self, reply: PullReply) {
        let at = reply.at;
        let slot = (at.array, at.range);
        let is_older = |old: &Fresh| old.clock <= reply.clock && old.own <= reply.own;
        let mut routes = self.routing.overlapping(at.array, at.range);
        let is_current = routes.any(|route| route.epoch == at.epoch);
        if is_current && self.fresh.get(&slot).is_none_or(is_older) {
            let fresh = Fresh {
                clock: reply.clock,
                own: reply.own,
                keys: reply.keys,
                values: reply.values,
            };
            self.fresh.insert(slot, fresh);
        }
    }

    pub(super) fn refused(
        &mut self,
        now: Duration,
        refused: Refused,
        actions: &mut Vec<ClientAction>,
    ) {
        let (at, reason) = (refused.at, refused.reason);
        let until = now + self.config.retry;
        let own = self.worker;
        let mut changed = Vec::new();
        for (&handle, running) in &mut self.tasks {
            let is_push = !running.is_pull() && running.task.array == at.array;
            let task_clock = running.task.clock;
            for part in &mut running.parts {
                let is_it = match refused.request {
                    Request::Push { worker, clock } => {
                        is_push && worker == own && clock == task_clock
                    }
                    Request::Pull { request } => part.request == Some(request),
                    Request::Replicate { .. } | Request::Snapshot { .. } => false,
                };
                if is_it && part.range == at.range && part.is_under_way(at.epoch) {
                    part.state = State::Delayed { until };
                    if reason.wants_routing() {
                        actions.push(ClientAction::FetchRouting);
                    }
                    changed.push(handle);
                }
            }
        }
        for &handle in &changed {
            self.note(handle);
        }
        if let Some(&handle) = changed.last()
            && !reason.is_retryable()
        {
            self.end(handle, TaskOutcome::Refused(reason), actions);
        }
    }

    fn end(&mut self, handle: Handle, outcome: TaskOutcome, actions: &mut Vec<ClientAction>) {
        if let Some(mut running) = self.tasks.remove(&handle) {
            self.index.end(handle, &mut running);
            actions.push(ClientAction::Done { handle, outcome });
        }
    }

    /// Ends the task if all of its parts are done.
    pub(super) fn finish(&mut self, handle: Handle, actions: &mut Vec<ClientAction>) {
        let running = self.tasks.get(&handle);
        let Some(running) = running.filter(|running| running.parts.iter().all(Part::is_done))
        else {
            return;
        };
        let is_pull = running.is_pull();
        let outcome = if is_pull {
            pulled(running)
        } else {
            TaskOutcome::Pushed
        };
        self.end(handle, outcome, actions);
    }
}

/// Outcome of a pull whose parts are all done.
fn pulled(running: &Running) -> TaskOutcome {
    let mut done: Vec<(&Part, &Values)> = Vec::with_capacity(running.parts.len());
    let (mut clock, mut newest, mut least_own) = (Clock(u64::MAX), Clock(0), Clock(u64::MAX));
    for part in &running.parts {
        if let State::Done {
            clock: part_clock,
            own,
            values,
        } = &part.state
        {
            clock = clock.min(*part_clock);
            newest = newest.max(*part_clock);
            least_own = least_own.min(*own);
            done.extend(values.iter().map(|values| (part, values)));
        }
    }
    done.sort_by_key(|(part, _)| part.range);
    // Rows of one shard are handed on as they came.
    let values: Shared<f32> = if let [(_, only)] = &done[..] {
        only.to_f32()
    } else {
        let mut all = Vec::with_capacity(done.iter().map(|(_, rows)| rows.len()).sum());
        done.iter()
            .for_each(|(_, rows)| all.extend_from_slice(&rows.to_f32()));
        all.into()
    };
    TaskOutcome::Pulled {
        clock,
        newest,
        own: least_own,
        values,
    }
}
