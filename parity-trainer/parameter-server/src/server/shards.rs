//! The shards of a server, the messages that reach them, and what a new routing table changes.

use std::collections::BTreeMap;

use super::replica::Replica;
use super::transfer::Incoming;
use super::{Action, ArrayConfig, Context};
use crate::{
    Answer, ArrayId, Epoch, Key, KeyRange, Message, Operation, Peer, PushAggregator, RangedClocks,
    Refusal, Request, Route, Routing, Seq, ShardRef, Store,
};

pub(super) type Held = BTreeMap<(ArrayId, Key), Replica>;

pub(super) struct Shards {
    pub(super) arrays: BTreeMap<ArrayId, ArrayConfig>,
    pub(super) routing: Routing,
    pub(super) held: Held,
    pub(super) incoming: BTreeMap<(ArrayId, Key), Incoming>,
}

/// The shard that holds the first key of `at`, whatever its epoch.
fn holder(held: &mut Held, at: ShardRef) -> Option<&mut Replica> {
    let (_, replica) = held.range_mut(..=(at.array, at.range.start)).next_back()?;
    let holds = replica.route.array == at.array && replica.range().contains(at.range.start);
    holds.then_some(replica)
}

/// The shard that covers the request's range, at its epoch.
fn covering(held: &mut Held, at: ShardRef) -> Result<&mut Replica, Refusal> {
    let replica = holder(held, at).filter(|replica| replica.range().covers(at.range));
    let replica = replica.ok_or(Refusal::UnknownRange)?;
    match replica.route.epoch {
        current if current == at.epoch => Ok(replica),
        current => Err(Refusal::WrongEpoch { current }),
    }
}

pub(super) fn exact(held: &mut Held, at: ShardRef) -> Option<&mut Replica> {
    let replica = held.get_mut(&(at.array, at.range.start));
    replica.filter(|replica| replica.route.at() == at)
}

impl Shards {
    pub(super) fn new(arrays: BTreeMap<ArrayId, ArrayConfig>) -> Self {
        Self { arrays, routing: Routing::default(), held: Held::new(), incoming: BTreeMap::new() }
    }

    pub(super) fn each(&mut self, act: impl FnMut(&mut Replica)) {
        self.held.values_mut().for_each(act);
    }

    /// Reason why this server cannot take a log entry or a copy for this shard.
    pub(super) fn why_not(&mut self, at: ShardRef) -> Refusal {
        // The routing table counts for shards that left this server too: it fences their old head.
        let routes = self.routing.overlapping(at.array, at.range);
        let newest = routes.map(|route| route.epoch).max();
        let held = holder(&mut self.held, at).map(|replica| replica.route.epoch);
        match newest.max(held) {
            Some(current) if current > at.epoch => Refusal::WrongEpoch { current },
            _ => Refusal::UnknownRange,
        }
    }

    pub(super) fn receive(&mut self, from: Peer, message: Message, context: &mut Context) {
        let held = &mut self.held;
        let (at, request, taken) = match message {
            Message::Push(push) => {
                let (at, worker, clock) = (push.at, push.worker, push.clock);
                let replica = covering(held, at);
                let taken = replica.and_then(|replica| replica.push(from, push, context));
                (at, Request::Push { worker, clock }, taken)
            }
            Message::Pull(pull) => {
                let (at, request) = (pull.at, pull.request);
                let replica = covering(held, at);
                let taken = replica.and_then(|replica| replica.pull(from, pull, context));
                (at, Request::Pull { request }, taken)
            }
            Message::Replicate(entry) => {
                let (at, seq) = (entry.at, entry.seq);
                let taken = match exact(held, at) {
                    Some(replica) => replica.replicate(from, entry, context),
                    None => Err(self.why_not(at)),
                };
                (at, Request::Replicate { seq }, taken)
            }
            Message::Snapshot(piece) => {
                let (at, transfer, part) = (piece.at, piece.transfer, piece.part);
                let taken = self.take_over(from, piece, context);
                (at, Request::Snapshot { transfer, part }, taken)
            }
            Message::Answer(answer) => return self.answered(from, answer, context),
            Message::Routing(routing) => return self.set_routing(routing, context),
            // Meant for workers.
            Message::PullReply(_) => return,
        };
        if let Err(reason) = taken {
            context.answer(from, at, request, Some(reason));
        }
    }

    fn answered(&mut self, from: Peer, answer: Answer, context: &mut Context) {
        let Some(replica) = exact(&mut self.held, answer.at) else {
            return;
        };
        match (answer.request, answer.refusal) {
            (Request::Replicate { seq }, None) => replica.acknowledged(from, seq, context),
            (Request::Replicate { .. }, Some(Refusal::WrongEpoch { current })) => {
                replica.fence(from, current);
            }
            (Request::Replicate { .. }, Some(_)) => replica.resend.hurry(),
            (Request::Snapshot { transfer, part }, None) => {
                replica.copied(from, (transfer, part), context);
            }
            (Request::Snapshot { transfer, part }, Some(reason)) => {
                replica.copy_refused(from, (transfer, part), reason, context);
            }
            _ => {}
        }
    }

    /// Drops copies that their senders have given up, of which no routing table need ever tell.
    pub(super) fn drop_given_up(&mut self, context: &Context) {
        let is_given_up = |at| context.now >= at;
        let given_up_at = |copy: &Incoming| copy.given_up_at(&context.config);
        self.incoming.retain(|_, copy| !given_up_at(copy).is_some_and(is_given_up));
    }

    /// Follows the registry: cuts shards, takes new places in chains, drops those gone elsewhere.
    fn set_routing(&mut self, routing: Routing, context: &mut Context) {
        if routing.version() <= self.routing.version() {
            return;
        }
        let mut old = std::mem::take(&mut self.held);
        self.take_in_copies(&mut old, &routing, context);
        let mut changed = Vec::new();
        for route in routing.routes() {
            if !route.chain.contains(&context.node) {
                continue;
            }
            let (at, slot) = (route.at(), (route.array, route.range.start));
            if old.get(&slot).is_none_or(|replica| replica.route != *route) {
                changed.push(slot);
            }
            match self.inherit(&mut old, route) {
                Some(replica) => {
                    self.held.insert(slot, replica);
                }
                None => context.actions.push(Action::Lost { at }),
            }
        }
        let before = std::mem::replace(&mut self.routing, routing);
        self.incoming.retain(|_, copy| {
            let routes = |table: &Routing| table.overlapping(copy.at.array, copy.at.range).count();
            // A shard that was never in the table may be newer than the table; one that has left it
            // is not coming back.
            let has_ended = routes(&before) > 0 && routes(&self.routing) == 0;
            let mut routes = self.routing.overlapping(copy.at.array, copy.at.range);
            !has_ended && routes.all(|route| route.epoch <= copy.at.epoch)
        });
        for slot in changed {
            if let Some(replica) = self.held.get_mut(&slot) {
                replica.settle(context);
            }
        }
    }

    /// Puts complete copies that let this server into a chain in the place of what it held before.
    /// The rows it held are older: while it was being copied to, it was not in the chain.
    fn take_in_copies(&mut self, old: &mut Held, routing: &Routing, context: &Context) {
        let lets_in = |at: ShardRef| {
            let mut routes = routing.overlapping(at.array, at.range);
            routes.any(|route| route.epoch > at.epoch && route.chain.contains(&context.node))
        };
        let is_copied = |_: &_, copy: &mut Incoming| copy.is_complete() && lets_in(copy.at);
        let copied = self.incoming.extract_if(.., is_copied);
        let mut copied: Vec<Incoming> = copied.map(|(_, copy)| copy).collect();
        copied.sort_by_key(|copy| copy.at.epoch);
        for copy in copied {
            let at = copy.at;
            let overlaps = |replica: &Replica| {
                replica.route.array == at.array && replica.range().intersect(at.range).is_some()
            };
            let is_newer = |replica: &Replica| overlaps(replica) && replica.route.epoch >= at.epoch;
            if old.values().any(is_newer) {
                continue;
            }
            old.retain(|_, replica| !overlaps(replica));
            if let Some(array) = self.arrays.get(&at.array)
                && let Some(replica) = copy.into_replica(array)
            {
                old.insert((at.array, at.range.start), replica);
            }
        }
    }

    /// The shard of `route`: a part of what is here, or a new one.
    fn inherit(&self, old: &mut Held, route: &Route) -> Option<Replica> {
        let held = old.range(..=(route.array, route.range.start)).next_back();
        let covers = |replica: &Replica| {
            replica.route.array == route.array && replica.range().covers(route.range)
        };
        if let Some((&slot, _)) = held.filter(|(_, replica)| covers(replica)) {
            let mut replica = old.remove(&slot)?;
            if replica.range().start < route.range.start {
                replica = replica.split_off(route.range.start);
            }
            if route.range.end < replica.range().end {
                let rest = replica.split_off(route.range.end);
                old.insert((route.array, route.range.end), rest);
            }
            if replica.route != *route {
                replica.route = route.clone();
                replica.reset();
            }
            return Some(replica);
        }
        // The first epoch is the birth of the shard.
        let array = self.arrays.get(&route.array)?;
        (route.epoch == Epoch(1)).then(|| {
            let store = Store::new(array.layout.clone(), route.range);
            let clocks = RangedClocks::new(route.range);
            Replica::new(route.clone(), array.consistency, store, clocks, 0, Seq(0))
        })
    }
}

impl Replica {
    /// Cuts at `key`: keeps what is below, returns the rest. Both keep all places of the log.
    fn split_off(&mut self, key: Key) -> Self {
        let lower = KeyRange::new(self.range().start, key);
        let upper = KeyRange::new(key, self.range().end);
        let width = self.store.layout().width;
        let route = Route::new(self.at().part(upper), self.route.chain.clone());
        let (store, clocks) = (self.store.split_off(key), self.clocks.split_off(key));
        let (members, applied) = (self.members, self.applied);
        let mut other = Self::new(route, self.consistency, store, clocks, members, applied);
        other.committed = self.committed.split_off(key);
        other.acked = self.acked;
        (other.recent, other.whole_from) = (self.recent.clone(), self.whole_from);
        other.log = self.log.map(|operation| cut(operation, upper, width));
        self.log = self.log.map(|operation| cut(operation, lower, width));
        self.route.range = lower;
        self.reset();
        other
    }

    /// Forgets what belongs to the ended epoch: workers send again what was not acknowledged.
    fn reset(&mut self) {
        self.aggregator = PushAggregator::new(self.store.layout().width, self.clocks.clone());
        self.unacknowledged.clear();
        self.waiting.clear();
        self.readers.clear();
        self.outgoing = None;
        self.refused_by.clear();
        self.fenced = None;
    }

    /// Takes its place in the chain: a tail commits all it has; others send on what may be missing.
    fn settle(&mut self, context: &mut Context) {
        if self.successor(context.node).is_none() {
            self.commit(self.applied, context);
        } else {
            self.send_log(context);
        }
        self.set_members(context);
    }
}

fn cut(operation: &Operation, shard: KeyRange, width: usize) -> Operation {
    match operation {
        Operation::Update(update) => Operation::Update(update.part(shard, width)),
        Operation::Members(_) => operation.clone(),
    }
}
