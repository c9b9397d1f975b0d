//! Progress of a client's tasks by the answers that arrive, and an index of them, so that no
//! message makes it look at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Client, ClientAction, Handle, Pulled, Running, TaskOutcome};
use crate::{
    Answer, ArrayId, Clock, Epoch, KeyRange, NodeId, PullReply, Refusal, Request, RequestId,
    ShardRef, Values,
};

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
    pub(super) request: Option<RequestId>,
    /// The server that it was sent to last.
    pub(super) to: Option<NodeId>,
    /// A refusal or another table came between: its time is not one server's.
    pub(super) is_delayed: bool,
    pub(super) state: State,
}

impl Part {
    pub(super) const fn new(range: KeyRange) -> Self {
        Self { range, epoch: None, request: None, to: None, is_delayed: false, state: State::Ready }
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// The answer has come, and but for what held it would have by then. Returns the server that was
    /// asked, if it did it all alone.
    fn end(
        &mut self,
        reply: Option<PullReply>,
        done: Duration,
        waits: &mut BTreeMap<NodeId, Duration>,
    ) -> Option<NodeId> {
        if let (&State::Sent { at }, Some(to)) = (&self.state, self.to) {
            let wait = waits.entry(to).or_default();
            *wait = (2 * done.saturating_sub(at)).max(*wait * 31 / 32);
        }
        self.state = State::Done(reply);
        self.to.filter(|_| !self.is_delayed)
    }

    pub(super) fn is_under_way(&self, epoch: Epoch) -> bool {
        matches!(self.state, State::Sent { .. }) && self.epoch == Some(epoch)
    }

    /// When it is to be sent again, if an answer may take so long.
    pub(super) fn due(&self, wait: Duration) -> Option<Duration> {
        match self.state {
            State::Sent { at } => Some(at + wait),
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
    pub(super) ready_pushes: BTreeSet<Place>,
    pub(super) ready_pulls: BTreeSet<Place>,
    /// Pushes with parts that are not under way.
    unsent: BTreeSet<(ArrayId, Clock, Handle)>,
    pub(super) sent: BTreeMap<(ArrayId, Clock, KeyRange), Handle>,
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

impl Client {
    pub(super) fn answered(&mut self, answer: Answer) {
        let Answer { at, request, .. } = answer;
        match (request, answer.refusal) {
            (_, Some(reason)) => self.refused(at, request, reason),
            (Request::Push { worker, clock }, None) if worker == self.worker => {
                self.pushed(at, clock, [answer.held_us, answer.copied_us]);
            }
            _ => {}
        }
    }

    fn pushed(&mut self, at: ShardRef, clock: Clock, micros: [u32; 2]) {
        let array = at.array;
        let [held, copied] = micros.map(|micros| Duration::from_micros(micros.into()));
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
                if is_acknowledged && !part.is_done() {
                    let done = self.now.saturating_sub(held);
                    let mut routes = self.routing.overlapping(array, at.range);
                    let route = routes.find(|route| route.epoch == at.epoch);
                    let node = part.end(None, done, &mut self.waits);
                    if let (Some(node), Some(route)) = (node, route) {
                        let times = [running.submitted, done];
                        self.served.pushed(node, part.range.len(), times, copied, route);
                    }
                    changed = true;
                } else if matches!(part.state, State::Delayed { .. }) {
                    part.state = State::Ready;
                    changed = true;
                }
            }
            if changed {
                self.note(handle);
                self.finish(handle);
            }
        }
    }

    pub(super) fn pulled(&mut self, reply: PullReply) {
        let at = reply.at;
        let width = self.arrays.get(&at.array).map(|array| array.width);
        let rows = reply.keys.len(at.range);
        if width.is_none_or(|width| reply.values.check(rows, width).is_err()) {
            return;
        }
        let Some(request) = reply.request else {
            return self.refresh(reply);
        };
        let is_it = |part: &&mut Part| part.request == Some(request) && part.range == at.range;
        if let Some(&handle) = self.index.asked.get(&request)
            && let Some(running) = self.tasks.get_mut(&handle)
            && let Some(part) = running.parts.iter_mut().find(is_it)
        {
            let done = self.now.saturating_sub(Duration::from_micros(reply.held_us.into()));
            if let Some(node) = part.end(Some(reply), done, &mut self.waits) {
                self.served.pulled(node, part.range.len(), [running.submitted, done]);
            }
            self.note(handle);
            self.finish(handle);
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

    fn refused(&mut self, at: ShardRef, request: Request, reason: Refusal) {
        let until = self.now + self.config.retry;
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
                    part.is_delayed = true;
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
            self.end(handle, Err(reason));
        }
    }

    fn end(&mut self, handle: Handle, outcome: TaskOutcome) {
        if let Some(mut running) = self.tasks.remove(&handle) {
            self.index.end(handle, &mut running);
            self.actions.push(ClientAction::Done { handle, outcome });
        }
    }

    pub(super) fn finish(&mut self, handle: Handle) {
        if let Some(running) = self.tasks.get(&handle)
            && running.parts.iter().all(Part::is_done)
        {
            let rows =
                running.is_pull().then(|| Pulled { served: self.served.take(), ..pulled(running) });
            self.end(handle, Ok(rows));
        }
    }
}

/// Outcome of a pull whose parts are all done.
fn pulled(running: &Running) -> Pulled {
    let replies = running.parts.iter().filter_map(|part| match &part.state {
        State::Done(reply) => reply.as_ref(),
        _ => None,
    });
    let mut replies: Vec<&PullReply> = replies.collect();
    replies.sort_by_key(|reply| reply.at.range);
    // Rows of one shard are handed on as they came.
    let mut updates = Vec::new();
    let values = match &replies[..] {
        [PullReply { values: Values::F32(rows), .. }] => rows.clone(),
        _ => {
            let mut all = Vec::with_capacity(replies.iter().map(|reply| reply.values.len()).sum());
            for reply in &replies {
                if let Values::Factors(factors) = &reply.values {
                    all.resize(all.len() + factors.len(), 0.0);
                    updates.push((reply.at.range, factors.clone()));
                } else {
                    all.extend_from_slice(&reply.values.to_f32());
                }
            }
            all.into()
        }
    };
    let clocks = replies.iter().map(|reply| reply.clock);
    let own = replies.iter().map(|reply| reply.own);
    Pulled {
        clock: clocks.clone().min().unwrap_or_default(),
        newest: clocks.max().unwrap_or_default(),
        own: own.min().unwrap_or_default(),
        values,
        updates,
        served: Vec::new(),
    }
}
