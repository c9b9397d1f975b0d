//! Finding a shard, and looking into it.

use std::time::Duration;

use super::replica::{Context, Replica};
use super::{Action, Server};
use crate::{ArrayId, Clock, Epoch, Key, KeyRange, RangedClocks, Refusal, Seq, ShardRef, Store};

/// A look into a shard, for tests and metrics.
#[derive(Debug, Clone, Copy)]
pub struct ShardView<'a> {
    /// Shard that is held.
    pub at: ShardRef,
    /// Rows of the shard.
    pub store: &'a Store,
    /// Clocks of each worker that the rows contain.
    pub clocks: &'a RangedClocks,
    /// The last log entry they contain.
    pub applied: Seq,
    /// The last log entry that is known to be in the whole chain.
    pub committed: Seq,
    /// True if this server accepts pushes for it.
    pub accepts_pushes: bool,
}

impl Server {
    /// All shards held here.
    pub fn shards(&self) -> impl Iterator<Item = ShardView<'_>> {
        self.replicas.values().map(Replica::view)
    }

    /// When [`super::Event::Tick`] is due, if anything waits for an answer.
    pub fn next_timer(&self) -> Option<Duration> {
        let replicas = self
            .replicas
            .values()
            .filter_map(|replica| replica.next_timer(&self.config));
        let copies = self
            .incoming
            .values()
            .filter_map(|copy| copy.given_up_at(&self.config));
        replicas.chain(copies).min()
    }

    /// Shards that are being copied to this server, and whether all of each is here.
    pub fn copies(&self) -> impl Iterator<Item = (ShardRef, bool)> {
        self.incoming
            .values()
            .map(|copy| (copy.at(), copy.is_complete()))
    }

    /// The shard that holds `key`.
    fn at(&self, array: ArrayId, key: Key) -> Option<&Replica> {
        let (_, replica) = self.replicas.range(..=(array, key)).next_back()?;
        (replica.array() == array && replica.range().contains(key)).then_some(replica)
    }

    /// The shard that covers the request's range, at its epoch.
    pub(super) fn covering<'a>(
        &'a mut self,
        now: Duration,
        at: ShardRef,
        actions: &'a mut Vec<Action>,
    ) -> Result<(&'a mut Replica, Context<'a>), Refusal> {
        let found = self
            .at(at.array, at.range.start)
            .filter(|replica| replica.range().covers(at.range));
        let reason = match found {
            Some(replica) if replica.epoch() != at.epoch => Refusal::WrongEpoch {
                current: replica.epoch(),
            },
            _ => Refusal::UnknownRange,
        };
        let range = found.map(Replica::range).ok_or(reason)?;
        self.exact(now, ShardRef { range, ..at }, actions)
            .ok_or(reason)
    }

    /// The shard with exactly this range and epoch.
    pub(super) fn exact<'a>(
        &'a mut self,
        now: Duration,
        at: ShardRef,
        actions: &'a mut Vec<Action>,
    ) -> Option<(&'a mut Replica, Context<'a>)> {
        let policy = &*self.arrays.get(&at.array)?.policy;
        let replica = self.replicas.get_mut(&(at.array, at.range.start))?;
        let same = replica.range() == at.range && replica.epoch() == at.epoch;
        let (node, config) = (self.node, &self.config);
        let context = Context {
            now,
            node,
            config,
            policy,
            pool: &mut self.pool,
            actions,
        };
        same.then_some((replica, context))
    }

    /// Why a log entry for this shard cannot be taken.
    pub(super) fn why_not(&self, at: ShardRef) -> Refusal {
        // What the routing table says counts for shards that have left this server, too: their old
        // head is fenced by it.
        let newest = |range: KeyRange| {
            self.routing
                .overlapping(at.array, range)
                .map(|route| route.epoch)
                .max()
        };
        let held = self.at(at.array, at.range.start).map(Replica::epoch);
        match newest(at.range).max(held) {
            Some(current) if current > at.epoch => Refusal::WrongEpoch { current },
            _ => Refusal::UnknownRange,
        }
    }

    /// Every worker's updates up to this clock are in the rows of `range` that are held here.
    pub fn finished(&self, array: ArrayId, range: KeyRange) -> Option<Clock> {
        self.at(array, range.start)?.view().clocks.finished(range)
    }

    /// The epoch of the shard that holds `key`.
    pub fn epoch(&self, array: ArrayId, key: Key) -> Option<Epoch> {
        self.at(array, key).map(Replica::epoch)
    }
}
