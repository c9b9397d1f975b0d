//! Changes to the shards held here that a new routing table brings.

use super::replica::Replica;
use super::shards::{Held, Shards};
use super::transfer::Incoming;
use super::{Action, Context};
use crate::{
    Epoch, Key, KeyRange, Operation, PushAggregator, RangedClocks, Route, Routing, Seq, ShardRef,
    Store,
};

impl Shards {
    /// Follows the registry: cuts shards, takes new places in their chains, drops those that have
    /// gone elsewhere.
    pub(super) fn set_routing(&mut self, routing: Routing, context: &mut Context<'_>) {
        if routing.version() <= self.routing.version() {
            return;
        }
        let mut old = std::mem::take(&mut self.held);
        self.take_in_copies(&mut old, &routing, context);
        for route in routing.routes() {
            if !route.chain.contains(&context.node) {
                continue;
            }
            let at = route.at();
            match self.inherit(&mut old, route) {
                Some(replica) => {
                    self.held.insert((at.array, at.range.start), replica);
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
        for replica in self.held.values_mut() {
            replica.settle(context);
        }
    }

    /// Puts complete copies that let this server into a chain in the place of what it held before.
    /// The rows it held are older: while it was being copied to, it was not in the chain.
    fn take_in_copies(&mut self, old: &mut Held, routing: &Routing, context: &Context<'_>) {
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
        other.log = self.log.map(|operation| cut(operation, upper, width));
        self.log = self.log.map(|operation| cut(operation, lower, width));
        self.route.range = lower;
        self.reset();
        other
    }

    /// Forgets what belongs to the epoch that has ended: workers send again what was not
    /// acknowledged.
    fn reset(&mut self) {
        self.aggregator = PushAggregator::new(self.store.layout().width, self.clocks.clone());
        self.unacknowledged.clear();
        self.waiting.clear();
        self.readers.clear();
        self.outgoing = None;
        self.refused_by.clear();
        self.fenced = None;
    }

    /// Takes its place in the chain: a tail has committed all that it has; the others send on what
    /// may be missing.
    fn settle(&mut self, context: &mut Context<'_>) {
        if self.successor(context.node).is_none() {
            self.commit(self.applied, context);
        } else {
            self.resend_log(context);
        }
        self.set_members(context);
    }
}

/// The part of an operation that is about `shard`.
fn cut(operation: &Operation, shard: KeyRange, width: usize) -> Operation {
    match operation {
        Operation::Update(update) => Operation::Update(update.part(shard, width)),
        Operation::Members(_) => operation.clone(),
    }
}
