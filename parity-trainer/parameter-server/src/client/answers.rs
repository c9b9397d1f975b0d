//! Progress of tasks by the answers that arrive.

use std::time::Duration;

use super::index::{Part, State};
use super::{Client, ClientAction, Handle, Pulled, Running, TaskOutcome};
use crate::{Answer, Clock, PullReply, Refusal, Request, ShardRef, Shared, Values};

impl Client {
    pub(super) fn answered(
        &mut self,
        now: Duration,
        answer: Answer,
        actions: &mut Vec<ClientAction>,
    ) {
        let Answer { at, request, .. } = answer;
        match (request, answer.refusal) {
            (_, Some(reason)) => self.refused(now, at, request, reason, actions),
            (Request::Push { worker, clock }, None) if worker == self.worker => {
                self.pushed(now, at, clock, actions);
            }
            _ => {}
        }
    }

    fn pushed(
        &mut self,
        now: Duration,
        at: ShardRef,
        clock: Clock,
        actions: &mut Vec<ClientAction>,
    ) {
        self.answered = now;
        let array = at.array;
        // Refused ones may have waited for this one; an answer may be older than a cut.
        let sent = self.index.sent.get(&(array, clock, at.range));
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
                if !at.range.covers(part.range) {
                    continue;
                }
                if is_acknowledged {
                    part.state = State::Done(None);
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
        let at = reply.at;
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
            part.state = State::Done(Some(reply));
            self.note(handle);
            self.finish(handle, actions);
        }
    }

    fn refresh(&mut self, reply: PullReply) {
        let at = reply.at;
        let slot = (at.array, at.range);
        let is_older = |old: &PullReply| old.clock <= reply.clock && old.own <= reply.own;
        let mut routes = self.routing.overlapping(at.array, at.range);
        let is_current = routes.any(|route| route.epoch == at.epoch);
        if is_current && self.fresh.get(&slot).is_none_or(is_older) {
            self.fresh.insert(slot, reply);
        }
    }

    fn refused(
        &mut self,
        now: Duration,
        at: ShardRef,
        request: Request,
        reason: Refusal,
        actions: &mut Vec<ClientAction>,
    ) {
        let until = now + self.config.retry;
        let own = self.worker;
        let mut changed = Vec::new();
        for (&handle, running) in &mut self.tasks {
            let is_push = !running.is_pull() && running.task.array == at.array;
            let task_clock = running.task.clock;
            for part in &mut running.parts {
                let is_it = match request {
                    Request::Push { worker, clock } => {
                        is_push && worker == own && clock == task_clock
                    }
                    Request::Pull { request } => part.request == Some(request),
                    Request::Replicate { .. } | Request::Snapshot { .. } => false,
                };
                if is_it && part.range == at.range && part.is_under_way(at.epoch) {
                    part.state = State::Delayed { until };
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
            self.end(handle, Err(reason), actions);
        }
    }

    fn end(&mut self, handle: Handle, outcome: TaskOutcome, actions: &mut Vec<ClientAction>) {
        if let Some(mut running) = self.tasks.remove(&handle) {
            self.index.end(handle, &mut running);
            actions.push(ClientAction::Done { handle, outcome });
        }
    }

    pub(super) fn finish(&mut self, handle: Handle, actions: &mut Vec<ClientAction>) {
        let running = self.tasks.get(&handle);
        let Some(running) = running.filter(|running| running.parts.iter().all(Part::is_done))
        else {
            return;
        };
        let rows = running.is_pull().then(|| pulled(running));
        self.end(handle, Ok(rows), actions);
    }
}

/// Outcome of a pull whose parts are all done.
fn pulled(running: &Running) -> Pulled {
    fn reply(part: &Part) -> Option<&PullReply> {
        match &part.state {
            State::Done(reply) => reply.as_ref(),
            _ => None,
        }
    }
    let mut replies: Vec<&PullReply> = running.parts.iter().filter_map(reply).collect();
    replies.sort_by_key(|reply| reply.at.range);
    // Rows of one shard are handed on as they came.
    let values: Shared<f32> = if let [only] = &replies[..] {
        only.values.to_f32()
    } else {
        let rows = replies.iter().map(|reply| &reply.values);
        let mut all = Vec::with_capacity(rows.clone().map(Values::len).sum());
        rows.for_each(|rows| all.extend_from_slice(&rows.to_f32()));
        all.into()
    };
    let clocks = replies.iter().map(|reply| reply.clock);
    Pulled {
        clock: clocks.clone().min().unwrap_or_default(),
        newest: clocks.max().unwrap_or_default(),
        own: replies
            .iter()
            .map(|reply| reply.own)
            .min()
            .unwrap_or_default(),
        values,
    }
}
