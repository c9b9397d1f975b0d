//! Work that servers have done for a client since its last pull, and the time it took.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{NodeId, Route, RowTimes, ServedBy, ShardRef};

#[derive(Debug, Default)]
pub(super) struct Served(BTreeMap<NodeId, Times>);

/// The longest time of a part counts: parts wait for one another on their way.
#[derive(Debug, Default)]
struct Times {
    pushed: RowTimes,
    /// When the last push was done.
    pushed_at: Duration,
    pulled: RowTimes,
    /// By shard that the server follows in: its rows, and the time of the log entry.
    copied: BTreeMap<ShardRef, Duration>,
}

impl Served {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts a part of a push for the head, and its log entry for those that follow in `route`.
    /// The part was `submitted` and done by then, but for the time that the head held it.
    pub(super) fn pushed(
        &mut self,
        node: NodeId,
        rows: u64,
        [submitted, done]: [Duration; 2],
        copied: Duration,
        route: &Route,
    ) {
        let head = self.0.entry(node).or_default();
        head.pushed.count += rows;
        head.pushed.took = head.pushed.took.max(done.saturating_sub(submitted));
        head.pushed_at = head.pushed_at.max(done);
        for &follower in route.chain.iter().skip(1) {
            let follower = self.0.entry(follower).or_default();
            let longest = follower.copied.entry(route.at()).or_default();
            *longest = copied.max(*longest);
        }
    }

    /// Counts a part of a pull. It waited on its way for the pushes before it.
    pub(super) fn pulled(&mut self, node: NodeId, rows: u64, [submitted, done]: [Duration; 2]) {
        let tail = self.0.entry(node).or_default();
        let began = submitted.max(tail.pushed_at);
        tail.pulled.count += rows;
        tail.pulled.took = tail.pulled.took.max(done.saturating_sub(began));
    }

    /// Returns what was done since the last time. Of a server's log entries it is the median that
    /// counts: a slow head before it makes only those of its own shards slow.
    pub(super) fn take(&mut self) -> Vec<ServedBy> {
        let served = std::mem::take(&mut self.0).into_iter();
        let served = served.map(|(node, Times { pushed, pulled, copied, .. })| {
            let logged: u64 = copied.keys().map(|shard| shard.range.len()).sum();
            let mut copied = Vec::from_iter(copied.into_values());
            copied.sort_unstable();
            let copied = copied.get(copied.len() / 2).copied().unwrap_or_default();
            let read = RowTimes { count: pulled.count + logged, took: pulled.took + copied };
            ServedBy { node, pushed, read }
        });
        served.collect()
    }
}
