//! Routing of parts to servers, and the order in which they are sent.

use std::ops::Bound;
use std::time::Duration;

use super::index::Place;
use super::part::{Part, State};
use super::{Client, ClientAction, Handle, Running, Work};
use crate::{
    ArrayId, Clock, Consistency, Epoch, KeyRange, Message, NodeId, Pull, Push, Routing, ShardRef,
};

/// Tasks that cannot be sent and are looked at after each event, at most: while a server cannot be
/// reached, all may be such ones.
const LOOKED_AT: usize = 256;

impl Client {
    /// The parts of a range, one for each shard; keys that no shard holds yet are parts of their
    /// own, and wait.
    pub(super) fn cut(&self, array: ArrayId, range: KeyRange) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut from = range.start;
        for both in self
            .routing
            .overlapping(array, range)
            .filter_map(|route| route.range.intersect(range))
        {
            parts.extend(
                [KeyRange::new(from, both.start), both]
                    .into_iter()
                    .filter(|part| !part.is_empty()),
            );
            from = both.end;
        }
        parts.extend(Some(KeyRange::new(from, range.end)).filter(|rest| !rest.is_empty()));
        parts.into_iter().map(Part::new).collect()
    }

    /// Cuts what is not answered by the new table. What was sent under an epoch that is over
    /// is sent again.
    pub(super) fn set_routing(&mut self, routing: Routing) {
        if routing.version() <= self.routing.version() {
            return;
        }
        self.routing = routing;
        let mut tasks = std::mem::take(&mut self.tasks);
        for (&handle, running) in &mut tasks {
            self.index.forget_parts(handle, running);
            let task = &running.task;
            let (kept, stale): (Vec<Part>, Vec<Part>) = std::mem::take(&mut running.parts)
                .into_iter()
                .partition(|part| {
                    let current = self.route(task.array, part.range).map(|(epoch, ..)| epoch);
                    part.is_done() || (current.is_some() && current == part.epoch)
                });
            let cut = stale
                .into_iter()
                .flat_map(|part| self.cut(task.array, part.range));
            running.parts = kept.into_iter().chain(cut).collect();
            for part in running.parts.iter().filter(|part| part.epoch.is_some()) {
                self.index
                    .note_sent(handle, running, part.range, part.request);
            }
            self.index.note(handle, running);
        }
        self.tasks = tasks;
        let routing = &self.routing;
        let is_current = |&(array, range): &(ArrayId, KeyRange)| {
            routing
                .overlapping(array, range)
                .any(|route| route.range.covers(range))
        };
        self.fresh.retain(|slot, _| is_current(slot));
    }

    /// The epoch, head and tail of the shard that has all of `range`.
    pub(super) fn route(&self, array: ArrayId, range: KeyRange) -> Option<(Epoch, NodeId, NodeId)> {
        let route = self
            .routing
            .route(array, range.start)
            .filter(|route| route.range.covers(range))?;
        Some((route.epoch, route.head()?, route.tail()?))
    }

    /// Sends the parts that may be sent, by clock, priority and age; pulls as far as
    /// their window allows.
    pub(super) fn send_ready(&mut self, now: Duration, actions: &mut Vec<ClientAction>) {
        self.serve_from_fresh(actions);
        let has_room = |client: &Self| client.index.pulls_under_way() < client.config.max_pulls;
        let (mut after, mut waiting) = (None, 0);
        while waiting < LOOKED_AT
            && let Some((place, is_pull)) = self.next_in_line(after, has_room(self))
        {
            after = Some(place);
            let (.., handle) = place;
            let parts = self
                .tasks
                .get(&handle)
                .map_or(0, |running| running.parts.len());
            let before = actions.len();
            for part in 0..parts {
                if !is_pull || has_room(self) {
                    self.send_part(now, handle, part, actions);
                }
            }
            waiting += usize::from(actions.len() == before);
        }
    }

    /// The first task after this place that has something to send, and whether it is a pull.
    fn next_in_line(&self, after: Option<Place>, with_pulls: bool) -> Option<(Place, bool)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let push = self
            .index
            .ready_pushes
            .range((from, Bound::Unbounded))
            .next()
            .map(|&place| (place, false));
        let pulls = self.index.ready_pulls.range((from, Bound::Unbounded));
        let pull = pulls
            .take(usize::from(with_pulls))
            .next()
            .map(|&place| (place, true));
        push.into_iter().chain(pull).min()
    }

    /// Sends a part, if it is ready, has somewhere to go, and overtakes no push.
    fn send_part(
        &mut self,
        now: Duration,
        handle: Handle,
        part: usize,
        actions: &mut Vec<ClientAction>,
    ) {
        let Some(Running { task, parts, .. }) = self.tasks.get(&handle) else {
            return;
        };
        let Some(Part { range, request, .. }) =
            parts.get(part).filter(|part| part.state == State::Ready)
        else {
            return;
        };
        let (range, request) = (*range, *request);
        let Some((epoch, head, tail)) = self.route(task.array, range) else {
            return;
        };
        let to = if task.work == Work::Pull { tail } else { head };
        if !self.send_window.takes(to) {
            return;
        }
        let (array, worker, clock) = (task.array, self.worker, task.clock);
        let at = ShardRef {
            array,
            range,
            epoch,
        };
        let (keys, places) = task.keys.cut(task.range, range);
        let mut bytes = keys.bytes();
        let (message, request) = match &task.work {
            Work::Push(values) => {
                if self.would_overtake(array, range, clock) {
                    return;
                }
                let width = self.arrays.get(&array).map_or(1, |array| array.width);
                let numbers = |place: usize| place.saturating_mul(width);
                let values = values.slice(numbers(places.start)..numbers(places.end));
                bytes += values.as_bytes().len();
                let push = Push {
                    at,
                    worker,
                    clock,
                    keys,
                    values,
                };
                (Message::Push(push), None)
            }
            Work::Pull => {
                let request = request.unwrap_or_else(|| self.request());
                let pull = Pull {
                    at,
                    worker,
                    request,
                    clock,
                    keys,
                };
                (Message::Pull(pull), Some(request))
            }
        };
        self.send_window.use_up(to, bytes);
        if let Some(part) = self
            .tasks
            .get_mut(&handle)
            .and_then(|running| running.parts.get_mut(part))
        {
            (part.epoch, part.request, part.state) =
                (Some(epoch), request, State::Sent { at: now });
        }
        if let Some(running) = self.tasks.get(&handle) {
            self.index.note_sent(handle, running, range, request);
            self.index.note(handle, running);
        }
        actions.push(ClientAction::Send { to, message });
    }

    /// Returns true if a push of an earlier clock on some of these keys has not been sent.
    fn would_overtake(&self, array: ArrayId, range: KeyRange, clock: Clock) -> bool {
        let unsent = |part: &Part| matches!(part.state, State::Ready | State::Delayed { .. });
        let earlier = self
            .index
            .unsent_before(array, clock)
            .filter_map(|handle| self.tasks.get(&handle));
        let mut parts = earlier.flat_map(|running| &running.parts);
        parts.any(|part| unsent(part) && part.range.intersect(range).is_some())
    }

    /// Eager SSP: a pull need not be sent if rows that are fresh enough have come already (Cui et
    /// al., ATC 2014).
    fn serve_from_fresh(&mut self, actions: &mut Vec<ClientAction>) {
        if self.fresh.is_empty() {
            return;
        }
        let mut served = Vec::new();
        let ready: Vec<Handle> = self
            .index
            .ready_pulls
            .iter()
            .map(|&(.., handle)| handle)
            .collect();
        for handle in ready {
            let Some(Running { task, parts, .. }) = self.tasks.get_mut(&handle) else {
                continue;
            };
            let Some(Consistency::EagerSsp(slack)) =
                self.arrays.get(&task.array).map(|array| array.consistency)
            else {
                continue;
            };
            for part in parts.iter_mut().filter(|part| part.state == State::Ready) {
                let Some(fresh) = self.fresh.get(&(task.array, part.range)) else {
                    continue;
                };
                let needed = Consistency::EagerSsp(slack).needed(task.clock);
                let (keys, _) = task.keys.cut(task.range, part.range);
                if fresh.keys == keys && fresh.clock >= needed && fresh.own >= task.clock.minus(1) {
                    let values = Some(fresh.values.clone());
                    part.state = State::Done {
                        clock: fresh.clock,
                        own: fresh.own,
                        values,
                    };
                    served.push(handle);
                }
            }
        }
        for handle in served {
            self.note(handle);
            self.finish(handle, actions);
        }
    }
}
