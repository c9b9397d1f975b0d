//! Progress of tasks by the answers that arrive.

use std::time::Duration;

use super::part::{Part, State};
use super::{Client, ClientAction, Fresh, Handle, Running, TaskOutcome, Work};
use crate::{Clock, PullReply, PushAck, Refused, Request, Values};

impl Client {
    pub(super) fn pushed(&mut self, now: Duration, ack: PushAck, actions: &mut Vec<ClientAction>) {
        if ack.worker != self.worker {
            return;
        }
        self.answered = now;
        let slot = (ack.at.array, ack.clock, ack.at.range);
        // Refused ones may have waited for this one; an answer may be older than a cut.
        let sent = self.index.sent(slot).filter(|_| !self.index.has_delayed());
        let handles: Vec<Handle> = match sent {
            Some(handle) => vec![handle],
            None => self.tasks.keys().copied().collect(),
        };
        for handle in handles {
            let Some(Running { task, parts, .. }) = self.tasks.get_mut(&handle) else {
                continue;
            };
            if !matches!(task.work, Work::Push(_)) || task.array != ack.at.array {
                continue;
            }
            let mut changed = false;
            for part in parts
                .iter_mut()
                .filter(|part| ack.at.range.covers(part.range))
            {
                if task.clock == ack.clock {
                    part.state = State::Done {
                        clock: ack.clock,
                        own: ack.clock,
                        values: None,
                    };
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
        let PullReply {
            at,
            request,
            clock,
            own,
            keys,
            values,
        } = reply;
        let Some(array) = self.arrays.get(&at.array) else {
            return;
        };
        if values.check(keys.len(at.range), array.width).is_err() {
            return;
        }
        self.answered = now;
        let Some(request) = request else {
            // One for each shard that is read, so their number is bounded by the table's.
            let slot = (at.array, at.range);
            if self
                .fresh
                .get(&slot)
                .is_none_or(|old| old.clock <= clock && old.own <= own)
                && self
                    .routing
                    .overlapping(at.array, at.range)
                    .any(|route| route.epoch == at.epoch)
            {
                self.fresh.insert(
                    slot,
                    Fresh {
                        clock,
                        own,
                        keys,
                        values,
                    },
                );
            }
            return;
        };
        let Some(handle) = self.index.asked(request) else {
            return;
        };
        let Some(running) = self.tasks.get_mut(&handle) else {
            return;
        };
        let mut parts = running.parts.iter_mut();
        if let Some(part) =
            parts.find(|part| part.request == Some(request) && part.range == at.range)
        {
            part.state = State::Done {
                clock,
                own,
                values: Some(values),
            };
            self.note(handle);
            self.finish(handle, actions);
        }
    }

    pub(super) fn refused(
        &mut self,
        now: Duration,
        refused: Refused,
        actions: &mut Vec<ClientAction>,
    ) {
        let Refused {
            at,
            request,
            reason,
        } = refused;
        let until = now + self.config.retry;
        let mut changed = Vec::new();
        for (&handle, running) in &mut self.tasks {
            let Running { task, parts, .. } = running;
            for part in parts
                .iter_mut()
                .filter(|part| part.range == at.range && part.is_under_way(at.epoch))
            {
                let is_it = match request {
                    Request::Push { worker, clock } => {
                        let is_push = matches!(task.work, Work::Push(_)) && task.array == at.array;
                        is_push && worker == self.worker && clock == task.clock
                    }
                    Request::Pull { request } => part.request == Some(request),
                    Request::Replicate { .. } | Request::Snapshot { .. } => false,
                };
                if !is_it {
                    continue;
                }
                part.state = State::Delayed { until };
                if reason.wants_routing() {
                    actions.push(ClientAction::FetchRouting);
                }
                changed.push(handle);
            }
        }
        for &handle in &changed {
            self.note(handle);
        }
        if let Some(&handle) = changed.last()
            && !reason.is_retryable()
        {
            self.fail(handle, TaskOutcome::Refused(reason), actions);
        }
    }

    /// Ends a task, and those that wait for it.
    fn fail(&mut self, handle: Handle, outcome: TaskOutcome, actions: &mut Vec<ClientAction>) {
        let mut failed = vec![(handle, outcome)];
        while let Some((handle, outcome)) = failed.pop() {
            if let Some(running) = self.tasks.remove(&handle) {
                let waiting = self.index.end(handle, &running);
                actions.push(ClientAction::Done { handle, outcome });
                failed.extend(
                    waiting
                        .into_iter()
                        .map(|waiting| (waiting, TaskOutcome::DependencyFailed(handle))),
                );
            }
        }
    }

    /// Ends the task if all of its parts are done.
    pub(super) fn finish(&mut self, handle: Handle, actions: &mut Vec<ClientAction>) {
        if !self
            .tasks
            .get(&handle)
            .is_some_and(|running| running.parts.iter().all(Part::is_done))
        {
            return;
        }
        let Some(mut running) = self.tasks.remove(&handle) else {
            return;
        };
        for waiting in self.index.end(handle, &running) {
            if let Some(other) = self.tasks.get_mut(&waiting) {
                other.waits_for = other.waits_for.saturating_sub(1);
                self.note(waiting);
            }
        }
        let outcome = match running.task.work {
            Work::Push(_) => TaskOutcome::Pushed,
            Work::Pull => {
                running.parts.sort_by_key(|part| part.range);
                let mut done = Vec::with_capacity(running.parts.len());
                let (mut clock, mut newest, mut own) = (Clock(u64::MAX), Clock(0), Clock(u64::MAX));
                for part in running.parts {
                    if let State::Done {
                        clock: part,
                        own: part_own,
                        values,
                    } = part.state
                    {
                        clock = clock.min(part);
                        newest = newest.max(part);
                        own = own.min(part_own);
                        done.extend(values);
                    }
                }
                // Rows of one shard are handed on as they came.
                let values = match &done[..] {
                    [only] => only.to_f32(),
                    many => {
                        let mut all = Vec::with_capacity(many.iter().map(Values::len).sum());
                        many.iter()
                            .for_each(|rows| all.extend_from_slice(&rows.to_f32()));
                        all.into()
                    }
                };
                TaskOutcome::Pulled {
                    clock,
                    newest,
                    own,
                    values,
                }
            }
        };
        actions.push(ClientAction::Done { handle, outcome });
    }
}
