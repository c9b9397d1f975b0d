//! Changes to the shards held here that a new routing table brings.

use std::collections::BTreeMap;
use std::time::Duration;

use super::replica::{Context, Replica};
use super::transfer::Incoming;
use super::{Action, Server};
use crate::{
    ArrayId, Epoch, Key, KeyRange, Operation, PushAggregator, RangedClocks, Route, Routing, Seq,
    ShardRef, Store,
};
use crate::{Clock, Keys, Values, WorkerId};

impl Server {
    /// Follows the registry: cuts shards, takes new places in their chains, drops those that
    /// have gone elsewhere.
    pub(super) fn set_routing(
        &mut self,
        now: Duration,
        routing: Routing,
        actions: &mut Vec<Action>,
    ) {
        if routing.version() <= self.routing.version() {
            return;
        }
        let mut old = std::mem::take(&mut self.replicas);
        self.take_in_copies(&mut old, &routing);
        let node = self.node;
        for route in routing
            .routes()
            .iter()
            .filter(|route| route.chain.contains(&node))
        {
            match self.inherit(&mut old, route) {
                Some(replica) => {
                    self.replicas
                        .insert((route.array, route.range.start), replica);
                }
                None => {
                    let at = ShardRef {
                        array: route.array,
                        range: route.range,
                        epoch: route.epoch,
                    };
                    actions.push(Action::Lost { at });
                }
            }
        }
        let before = std::mem::replace(&mut self.routing, routing);
        let routing = &self.routing;
        self.incoming.retain(|_, incoming| {
            let at = incoming.at();
            let routes = |table: &Routing| table.overlapping(at.array, at.range).count();
            // A shard that was never in the table may be newer than the table; one that has left it
            // is not coming back.
            let has_ended = routes(&before) > 0 && routes(routing) == 0;
            !has_ended
                && routing
                    .overlapping(at.array, at.range)
                    .all(|route| route.epoch <= at.epoch)
        });
        self.each(now, actions, |replica, context, members| {
            replica.settle(members, context)
        });
    }

    /// Puts complete copies that let this server into a chain in the place of what it held before.
    /// The rows it held are older: while it was being copied to, it was not in the chain.
    fn take_in_copies(&mut self, old: &mut BTreeMap<(ArrayId, Key), Replica>, routing: &Routing) {
        let copied = self.incoming.extract_if(.., |_, incoming| {
            let at = incoming.at();
            let lets_in =
                |route: &Route| route.epoch > at.epoch && route.chain.contains(&self.node);
            incoming.is_complete() && routing.overlapping(at.array, at.range).any(lets_in)
        });
        let mut copied: Vec<Incoming> = copied.map(|(_, incoming)| incoming).collect();
        copied.sort_by_key(|incoming| incoming.at().epoch);
        for incoming in copied {
            let at = incoming.at();
            let overlaps =
                |r: &Replica| r.array() == at.array && r.range().intersect(at.range).is_some();
            if old
                .values()
                .any(|replica| overlaps(replica) && replica.epoch() >= at.epoch)
            {
                continue;
            }
            old.retain(|_, replica| !overlaps(replica));
            let route = Route {
                array: at.array,
                range: at.range,
                epoch: at.epoch,
                chain: Vec::new(),
            };
            old.extend(
                incoming
                    .into_replica(route)
                    .map(|replica| ((at.array, at.range.start), replica)),
            );
        }
    }

    /// The shard of `route`: a part of what is here, or a new one.
    fn inherit(
        &self,
        old: &mut BTreeMap<(ArrayId, Key), Replica>,
        route: &Route,
    ) -> Option<Replica> {
        let held = old
            .range(..=(route.array, route.range.start))
            .next_back()
            .filter(|(_, r)| r.array() == route.array && r.range().covers(route.range))
            .map(|(&slot, _)| slot);
        if let Some(held) = held {
            let mut replica = old.remove(&held)?;
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
        let layout = self.arrays.get(&route.array)?.layout.clone();
        let clocks = RangedClocks::new(route.range);
        (route.epoch == Epoch(1)).then(|| {
            Replica::new(
                route.clone(),
                Store::new(layout, route.range),
                clocks,
                0,
                Seq(0),
            )
        })
    }
}

impl Replica {
    /// Cuts at `key`: keeps what is below, returns the rest. Both keep all places of the log.
    fn split_off(&mut self, key: Key) -> Self {
        let (lower, upper) = (
            KeyRange::new(self.range().start, key),
            KeyRange::new(key, self.range().end),
        );
        let store = self.store.split_off(key);
        let clocks = self.clocks.split_off(key);
        let mut other = Self::new(
            Route {
                range: upper,
                ..self.route.clone()
            },
            store,
            clocks,
            self.members,
            self.applied,
        );
        other.committed = self.committed.split_off(key);
        other.acked = self.acked;
        other.log = self
            .log
            .iter()
            .map(|operation| cut(operation, upper, self.store.layout().width))
            .collect();
        self.log = self
            .log
            .iter()
            .map(|operation| cut(operation, lower, self.store.layout().width))
            .collect();
        self.route.range = lower;
        self.reset();
        other
    }

    /// Forgets what belongs to the epoch that has ended: workers send again what
    /// was not acknowledged.
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
    fn settle(&mut self, members: &(u64, Vec<(WorkerId, Clock)>), context: &mut Context<'_>) {
        if self.successor(context.node).is_none() {
            self.commit(self.applied, context);
        } else {
            self.resend_log(context);
        }
        self.set_members(members, context);
    }
}

/// The part of an operation that is about `part`.
fn cut(operation: &Operation, part: KeyRange, width: usize) -> Operation {
    match operation {
        Operation::Update {
            range,
            clocks,
            keys,
            values,
        } => {
            let within = part
                .intersect(*range)
                .unwrap_or(KeyRange::new(part.start, part.start));
            if within.is_empty() {
                let keys = Keys::none();
                return Operation::Update {
                    range: within,
                    clocks: Vec::new(),
                    keys,
                    values: Values::none(),
                };
            }
            let (keys, places) = keys.cut(*range, within);
            let values =
                values.slice(places.start.saturating_mul(width)..places.end.saturating_mul(width));
            Operation::Update {
                range: within,
                clocks: clocks.clone(),
                keys,
                values,
            }
        }
        Operation::Members { .. } => operation.clone(),
    }
}
