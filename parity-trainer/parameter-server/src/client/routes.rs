//! Which part goes where, and when.

use std::time::Duration;

use super::part::{Part, State};
use super::{Client, ClientAction, Handle, Running, Work};
use crate::{
    ArrayId, Clock, Consistency, Epoch, KeyRange, Message, NodeId, Pull, Push, Routing, ShardRef, Values,
};

impl Client {
    /// The parts of a range, one for each shard; keys that no shard holds yet are parts of their own, and wait.
    pub(super) fn cut(&self, array: ArrayId, range: KeyRange) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut from = range.start;
        for both in self.routing.overlapping(array, range).filter_map(|route| route.range.intersect(range)) {
            parts.extend([KeyRange::new(from, both.start), both].into_iter().filter(|part| !part.is_empty()));
            from = both.end;
        }
        parts.extend(Some(KeyRange::new(from, range.end)).filter(|rest| !rest.is_empty()));
        parts.into_iter().map(Part::new).collect()
    }

    /// Cuts what is not answered by the new table. What was sent under an epoch that is over is sent again.
    pub(super) fn set_routing(&mut self, routing: Routing) {
        if routing.version() <= self.routing.version() {
            return;
        }
        self.routing = routing;
        let mut tasks = std::mem::take(&mut self.tasks);
        for Running { task, parts } in tasks.values_mut() {
            let (kept, stale): (Vec<Part>, Vec<Part>) = std::mem::take(parts).into_iter().partition(|part| {
                let current = self.route(task.array, part.range).map(|(epoch, ..)| epoch);
                part.is_done() || (current.is_some() && current == part.epoch)
            });
            *parts = kept;
            parts.extend(stale.into_iter().flat_map(|part| self.cut(task.array, part.range)));
        }
        self.tasks = tasks;
        let routing = &self.routing;
        let is_current = |&(array, range): &(ArrayId, KeyRange)| {
            routing.overlapping(array, range).any(|route| route.range.covers(range))
        };
        self.fresh.retain(|slot, _| is_current(slot));
    }

    /// The epoch, head and tail of the shard that has all of `range`.
    fn route(&self, array: ArrayId, range: KeyRange) -> Option<(Epoch, NodeId, NodeId)> {
        let route = self.routing.route(array, range.start).filter(|route| route.range.covers(range))?;
        Some((route.epoch, route.head()?, route.tail()?))
    }

    /// Sends the parts that may be sent, by clock, priority and age; pulls as far as their window allows.
    pub(super) fn send_ready(&mut self, now: Duration, actions: &mut Vec<ClientAction>) {
        self.serve_from_fresh(actions);
        let pulls = self.tasks.values().filter(|running| running.task.work == Work::Pull);
        let under_way =
            pulls.flat_map(|running| &running.parts).filter(|part| matches!(part.state, State::Sent { .. }));
        let mut room = self.config.max_pulls.saturating_sub(under_way.count());
        let mut order: Vec<(Clock, u32, Handle, usize, bool)> = self
            .tasks
            .iter()
            .filter(|(_, running)| running.parts.iter().any(|part| part.state == State::Ready))
            .filter(|(_, running)| !running.task.after.iter().any(|handle| self.tasks.contains_key(handle)))
            .map(|(&handle, Running { task, parts })| {
                (task.clock, task.priority, handle, parts.len(), task.work == Work::Pull)
            })
            .collect();
        order.sort_unstable();
        for (.., handle, parts, is_pull) in order {
            for part in 0..parts {
                let allowed = !is_pull || room > 0;
                if allowed && self.send_part(now, handle, part, actions) {
                    room -= usize::from(is_pull);
                }
            }
        }
    }

    /// Sends a part, if it is ready, has somewhere to go, and overtakes no push.
    fn send_part(
        &mut self,
        now: Duration,
        handle: Handle,
        part: usize,
        actions: &mut Vec<ClientAction>,
    ) -> bool {
        let Some(Running { task, parts }) = self.tasks.get(&handle) else { return false };
        let Some(Part { range, request, .. }) = parts.get(part).filter(|part| part.state == State::Ready)
        else {
            return false;
        };
        let (range, request) = (*range, *request);
        let Some((epoch, head, tail)) = self.route(task.array, range) else { return false };
        let (array, worker, clock) = (task.array, self.worker, task.clock);
        let at = ShardRef { array, range, epoch };
        let (keys, places) = task.keys.cut(task.range, range);
        let (to, message, request) = match &task.work {
            Work::Push(values) => {
                if self.would_overtake(array, range, clock) {
                    return false;
                }
                let width = self.arrays.get(&array).map_or(1, |array| array.width);
                let values =
                    values.slice(places.start.saturating_mul(width)..places.end.saturating_mul(width));
                (head, Message::Push(Push { at, worker, clock, keys, values }), None)
            }
            Work::Pull => {
                let request = request.unwrap_or_else(|| self.request());
                (tail, Message::Pull(Pull { at, worker, request, clock, keys }), Some(request))
            }
        };
        if let Some(part) = self.tasks.get_mut(&handle).and_then(|running| running.parts.get_mut(part)) {
            (part.epoch, part.request, part.state) = (Some(epoch), request, State::Sent { at: now });
        }
        actions.push(ClientAction::Send { to, message });
        true
    }

    /// Whether a push of an earlier clock on some of these keys has not been sent.
    fn would_overtake(&self, array: ArrayId, range: KeyRange, clock: Clock) -> bool {
        self.tasks.values().any(|Running { task, parts }| {
            let earlier = matches!(task.work, Work::Push(_)) && task.array == array && task.clock < clock;
            let unsent = |part: &Part| matches!(part.state, State::Ready | State::Delayed { .. });
            earlier && parts.iter().any(|part| unsent(part) && part.range.intersect(range).is_some())
        })
    }

    /// Eager SSP: a pull need not be sent if rows that are fresh enough have come already (Cui et al., ATC 2014).
    fn serve_from_fresh(&mut self, actions: &mut Vec<ClientAction>) {
        let mut served = false;
        let done: Vec<Handle> = self.tasks.keys().copied().collect();
        for (&handle, Running { task, parts }) in &mut self.tasks {
            let Some(Consistency::EagerSsp(slack)) =
                self.arrays.get(&task.array).map(|array| array.consistency)
            else {
                continue;
            };
            let waits = task.after.iter().any(|after| *after < handle && done.binary_search(after).is_ok());
            if task.work != Work::Pull || waits {
                continue;
            }
            for part in parts.iter_mut().filter(|part| part.state == State::Ready) {
                let Some(fresh) = self.fresh.get(&(task.array, part.range)) else { continue };
                let needed = Consistency::EagerSsp(slack).needed(task.clock);
                let (keys, _) = task.keys.cut(task.range, part.range);
                if fresh.keys == keys && fresh.clock >= needed && fresh.own >= task.clock.minus(1) {
                    part.state = State::Done { clock: fresh.clock, values: Values::clone(&fresh.values) };
                    served = true;
                }
            }
        }
        if served {
            self.finish(actions);
        }
    }
}
