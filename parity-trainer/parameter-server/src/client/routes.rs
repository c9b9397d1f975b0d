//! Routing of parts to servers, the order in which they are sent, and room in the connections.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::progress::{Part, Place, State};
use super::{Client, ClientAction, Handle, Work};
use crate::{
    ArrayId, Clock, Consistency, Epoch, KeyRange, Message, NodeId, Pull, Push, RequestId, Routing,
    ShardRef,
};

/// Tasks that cannot be sent and are looked at after each event, at most: while a server cannot be
/// reached, all may be such ones.
const LOOKED_AT: usize = 256;

/// Bytes of a message beside its keys and values, about.
const HEAD: usize = 128;

impl Client {
    /// Parts of a range, one per shard; keys that no shard holds yet are their own parts and wait.
    pub(super) fn cut(&self, array: ArrayId, range: KeyRange) -> Vec<Part> {
        let mut ranges = Vec::new();
        let mut from = range.start;
        for route in self.routing.overlapping(array, range) {
            let [below, within, _] = KeyRange::new(from, range.end).around(route.range);
            ranges.extend([below, within]);
            from = within.end;
        }
        ranges.push(KeyRange::new(from, range.end));
        ranges.retain(|part| !part.is_empty());
        ranges.into_iter().map(Part::new).collect()
    }

    /// Cuts what is not answered by the new table. What was sent under a past epoch is sent again.
    pub(super) fn set_routing(&mut self, routing: Routing) {
        if routing.version() <= self.routing.version() {
            return;
        }
        self.routing = routing;
        let mut tasks = std::mem::take(&mut self.tasks);
        for (&handle, running) in &mut tasks {
            self.index.forget_parts(handle, running);
            let array = running.task.array;
            for part in std::mem::take(&mut running.parts) {
                let current = self.route(array, part.range).map(|(epoch, ..)| epoch);
                if part.is_done() || (current.is_some() && current == part.epoch) {
                    running.parts.push(part);
                } else {
                    let mut parts = self.cut(array, part.range);
                    parts.iter_mut().for_each(|part| part.is_delayed = true);
                    running.parts.append(&mut parts);
                }
            }
            for part in running.parts.iter().filter(|part| part.epoch.is_some()) {
                self.index.note_sent(handle, running, part);
            }
            self.index.note(handle, running);
        }
        self.tasks = tasks;
        self.fresh.retain(|&(array, range), _| {
            let mut routes = self.routing.overlapping(array, range);
            routes.any(|route| route.range.covers(range))
        });
    }

    /// The epoch, head and tail of the shard that has all of `range`.
    pub(super) fn route(&self, array: ArrayId, range: KeyRange) -> Option<(Epoch, NodeId, NodeId)> {
        let route = self.routing.route(array, range.start)?;
        let covers = route.range.covers(range);
        covers.then_some((route.epoch, route.head()?, route.tail()?))
    }

    /// Sends the parts that may be sent, by clock and age; pulls as far as their window allows.
    pub(super) fn send_ready(&mut self) {
        self.serve_from_fresh();
        let (mut after, mut waiting) = (None, 0);
        while waiting < LOOKED_AT
            && let Some(place) = self.next_in_line(after)
        {
            after = Some(place);
            let (_, handle) = place;
            let running = self.tasks.get(&handle);
            let parts = running.map_or(0, |running| running.parts.len());
            let before = self.actions.len();
            for part in 0..parts {
                self.send_part(handle, part);
            }
            waiting += usize::from(self.actions.len() == before);
        }
    }

    fn may_pull(&self) -> bool {
        self.index.total.pulls_under_way < self.config.max_pulls
    }

    /// The first task after this place that has something to send.
    fn next_in_line(&self, after: Option<Place>) -> Option<Place> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let from = (after, Bound::Unbounded);
        let push = self.index.ready_pushes.range(from).next();
        let pull = self.index.ready_pulls.range(from).next();
        let pull = pull.filter(|_| self.may_pull());
        push.into_iter().chain(pull).min().copied()
    }

    /// Sends a part, if it is ready, has somewhere to go, and overtakes no push.
    fn send_part(&mut self, handle: Handle, place: usize) {
        let Some(running) = self.tasks.get(&handle) else {
            return;
        };
        let (task, is_pull) = (&running.task, running.is_pull());
        let part = running.parts.get(place);
        let Some(part) = part.filter(|part| part.state == State::Ready) else {
            return;
        };
        let (array, worker, clock, range) = (task.array, self.worker, task.clock, part.range);
        let Some((epoch, head, tail)) = self.route(array, range) else {
            return;
        };
        let (to, may_go) = match is_pull {
            true => (tail, self.may_pull()),
            false => (head, !self.would_overtake(array, range, clock)),
        };
        if !may_go || !self.send_window.takes(to) {
            return;
        }
        let at = ShardRef::new(array, range, epoch);
        let (message, request, bytes) = match &task.work {
            Work::Push(values) => {
                let width = self.arrays.get(&array).map_or(1, |array| array.width);
                let (keys, values) = task.keys.cut_rows(values, task.range, range, width);
                let bytes = keys.bytes() + values.as_bytes().len();
                let push = Push { at, worker, clock, keys, values };
                (Message::Push(push), None, bytes)
            }
            &Work::Pull { held } => {
                let (keys, _) = task.keys.cut(task.range, range);
                let bytes = keys.bytes();
                let request = part.request.unwrap_or_else(|| {
                    self.next_request += 1;
                    RequestId(self.next_request)
                });
                let pull = Pull { at, worker, request, clock, held, keys };
                (Message::Pull(pull), Some(request), bytes)
            }
        };
        self.send_window.use_up(to, bytes);
        let Some(running) = self.tasks.get_mut(&handle) else {
            return;
        };
        if let Some(part) = running.parts.get_mut(place) {
            part.epoch = Some(epoch);
            part.to = Some(to);
            part.request = request;
            part.state = State::Sent { at: self.now };
        }
        if let Some(part) = running.parts.get(place) {
            self.index.note_sent(handle, running, part);
        }
        self.index.note(handle, running);
        self.actions.push(ClientAction::Send { to, message });
    }

    /// Returns true if a push of an earlier clock on some of these keys has not been sent.
    fn would_overtake(&self, array: ArrayId, range: KeyRange, clock: Clock) -> bool {
        let is_unsent = |part: &Part| matches!(part.state, State::Ready | State::Delayed { .. });
        let earlier = self.index.unsent_before(array, clock);
        let earlier = earlier.filter_map(|handle| self.tasks.get(&handle));
        let mut parts = earlier.flat_map(|running| &running.parts);
        parts.any(|part| is_unsent(part) && part.range.intersect(range).is_some())
    }

    /// Eager SSP: a pull need not be sent if fresh enough rows have come (Cui et al., ATC 2014).
    fn serve_from_fresh(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let mut served = Vec::new();
        for &(_, handle) in &self.index.ready_pulls {
            let Some(running) = self.tasks.get_mut(&handle) else {
                continue;
            };
            let task = &running.task;
            let model = self.arrays.get(&task.array).map(|array| array.consistency);
            let Some(model @ Consistency::EagerSsp(_)) = model else {
                continue;
            };
            let (needed, needed_own) = (model.needed(task.clock), task.clock.minus(1));
            let parts = running.parts.iter_mut();
            for part in parts.filter(|part| part.state == State::Ready) {
                let Some(fresh) = self.fresh.get(&(task.array, part.range)) else {
                    continue;
                };
                let (keys, _) = task.keys.cut(task.range, part.range);
                if fresh.keys == keys && fresh.clock >= needed && fresh.own >= needed_own {
                    part.state = State::Done(Some(fresh.clone()));
                    served.push(handle);
                }
            }
        }
        for handle in served {
            self.note(handle);
            self.finish(handle);
        }
    }
}

/// A message sent without room is lost, and is sent again only after a wait. So a part that finds
/// none stays where it is, in line before those that would overtake it.
#[derive(Debug, Default)]
pub(super) struct SendWindow {
    /// Bytes that each connection can still take; `None` for no limit, until one is reported.
    left: Option<BTreeMap<NodeId, usize>>,
    /// Where parts wait for room.
    pub(super) held_back: BTreeSet<NodeId>,
}

impl SendWindow {
    pub(super) fn set(&mut self, left: BTreeMap<NodeId, usize>) {
        self.left = Some(left);
        self.held_back.clear();
    }

    /// Returns true if a part may go there; if there is a way, but no room, it is waited for.
    pub(super) fn takes(&mut self, to: NodeId) -> bool {
        let Some(left) = &self.left else { return true };
        match left.get(&to) {
            Some(0) => {
                self.held_back.insert(to);
                false
            }
            room => room.is_some(),
        }
    }

    /// A message with so many bytes of keys and values goes there. It may be longer than the room
    /// that it has found.
    pub(super) fn use_up(&mut self, to: NodeId, bytes: usize) {
        if let Some(room) = self.left.as_mut().and_then(|left| left.get_mut(&to)) {
            *room = room.saturating_sub(bytes.saturating_add(HEAD));
        }
    }
}
