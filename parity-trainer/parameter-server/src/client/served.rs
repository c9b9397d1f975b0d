//! Work that servers have done for a client since its last pull, and the time it took.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Clock, NodeId, Route, RowTimes, ServedBy, ShardRef, median};

#[derive(Debug, Default)]
pub(super) struct Served {
    /// That of the last push.
    clock: Clock,
    nodes: BTreeMap<NodeId, Times>,
}

/// The time counts in which a server had parts to do: they wait for one another on their way.
#[derive(Debug, Default)]
struct Times {
    pushed: RowTimes,
    /// When the last push was done.
    pushed_at: Duration,
    pulled: RowTimes,
    /// Rows of the log entries that it sent: pulls wait for them on their way.
    sent: u64,
    /// By shard that the server follows in: its rows, and the time of the log entry.
    copied: BTreeMap<ShardRef, Duration>,
}

impl Served {
    /// A push of this clock begins. A worker that never pulls would add up those of all its steps.
    pub(super) fn begin(&mut self, clock: Clock) {
        if clock != std::mem::replace(&mut self.clock, clock) {
            self.nodes.clear();
        }
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
        let head = self.nodes.entry(node).or_default();
        head.pushed.count += rows;
        head.pushed.took += done.saturating_sub(submitted.max(head.pushed_at));
        head.pushed_at = head.pushed_at.max(done);
        head.sent += if route.chain.len() > 1 { rows } else { 0 };
        for &follower in route.chain.iter().skip(1) {
            let follower = self.nodes.entry(follower).or_default();
            let longest = follower.copied.entry(route.at()).or_default();
            *longest = copied.max(*longest);
        }
    }

    /// Counts a part of a pull. It waited on its way for the pushes before it.
    pub(super) fn pulled(&mut self, node: NodeId, rows: u64, [submitted, done]: [Duration; 2]) {
        let tail = self.nodes.entry(node).or_default();
        let began = submitted.max(tail.pushed_at);
        tail.pulled.count += rows;
        tail.pulled.took = tail.pulled.took.max(done.saturating_sub(began));
    }

    /// Returns what was done since the last time. Of a server's log entries it is the median that
    /// counts: a slow head before it makes only those of its own shards slow.
    pub(super) fn take(&mut self) -> Vec<ServedBy> {
        let served = std::mem::take(&mut self.nodes).into_iter();
        let served = served.map(|(node, Times { pushed, pulled, sent, copied, .. })| {
            let logged: u64 = copied.keys().map(|shard| shard.range.len()).sum();
            let copied = median(copied.into_values()).unwrap_or_default();
            let timed = pulled.count + logged;
            let count = timed + if timed > 0 { sent } else { 0 };
            let read = RowTimes { count, took: pulled.took + copied };
            ServedBy { node, pushed, logged, read }
        });
        served.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrayId, Epoch, KeyRange};

    #[test]
    fn times_of_pieces_count_once() {
        let route = Route {
            array: ArrayId(1),
            range: KeyRange::new(0, 9),
            epoch: Epoch(1),
            chain: vec![NodeId(1)],
        };
        let (mut served, ms) = (Served::default(), Duration::from_millis);
        // The first two wait for each other; the third comes when both are done.
        for (clock, submitted, done) in [(1, 0, 99), (2, 0, 10), (2, 5, 20), (2, 50, 60)] {
            served.begin(Clock(clock));
            let times = [submitted, done].map(ms);
            served.pushed(NodeId(1), 3, times, Duration::ZERO, &route);
        }
        let expected = RowTimes { count: 9, took: ms(30) };
        assert_eq!(served.take()[0].pushed, expected);
    }
}
