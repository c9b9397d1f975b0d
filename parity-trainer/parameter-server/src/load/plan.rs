//! Assignment of shards to servers.

use std::collections::{BTreeMap, BTreeSet};

use super::ServiceTime;
use crate::NodeId;

/// Moves in one plan, at most; the next one goes on.
const MOVES: usize = 64;

/// Servers that are tried for each shard: those that would be done first.
const TARGETS: usize = 4;

/// Part that a move must save.
const WORTH: f64 = 0.01;

/// Power of the times in the sum that moves make smaller: the slowest count for nearly all.
const SHARPNESS: i32 = 16;

/// Shards: their rows, and the servers that hold them, head first.
type Shards = [(u64, Vec<NodeId>)];

/// Rows that each server of a chain sends and receives: the head takes pushes, the tail answers
/// pulls. Those in between cost the slowest no time.
fn roles(chain: &[NodeId]) -> impl Iterator<Item = NodeId> + '_ {
    chain.first().into_iter().chain(chain.last()).copied()
}

/// Other chains, and the seconds of the slowest server before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub chains: Vec<Vec<NodeId>>,
    pub before: f64,
    pub after: f64,
}

/// Returns other chains for these shards, among `servers`, under which the slowest server takes
/// less time; `None` if that would save less than `gain` of it. Shards move one by one from the
/// slowest server, so that the times of the slowest servers fall most. Of servers that are
/// `untried`, those without a shard get one, and show what they can do.
pub fn plan(
    shards: &Shards,
    servers: &BTreeMap<NodeId, ServiceTime>,
    untried: &BTreeSet<NodeId>,
    gain: f64,
) -> Option<Plan> {
    let mut rows: Rows = servers.keys().map(|&node| (node, 0)).collect();
    for (size, chain) in shards {
        roles(chain).for_each(|node| *rows.entry(node).or_default() += size);
    }
    let chains = Vec::from_iter(shards.iter().map(|(_, chain)| chain.clone()));
    let mut search = Search { shards, servers, untried, chains, rows };
    let (before, _) = search.slowest()?;
    let (mut after, mut chains) = (before, None);
    for _ in 0..MOVES {
        let (worst, from) = search.slowest().filter(|(worst, _)| *worst > 0.0)?;
        let Some(best) = search.best_move(worst, from) else { break };
        search.rows = best.rows;
        if let Some(chain) = search.chains.get_mut(best.shard) {
            *chain = best.chain;
        }
        let (now, _) = search.slowest()?;
        if now < after * (1.0 - WORTH) {
            (after, chains) = (now, Some(search.chains.clone()));
        }
    }
    let chains = chains.filter(|_| after < before * (1.0 - gain))?;
    Some(Plan { chains, before, after })
}

/// Rows that each server sends and receives.
type Rows = BTreeMap<NodeId, u64>;

struct Search<'a> {
    shards: &'a Shards,
    servers: &'a BTreeMap<NodeId, ServiceTime>,
    untried: &'a BTreeSet<NodeId>,
    chains: Vec<Vec<NodeId>>,
    rows: Rows,
}

struct Move {
    shard: usize,
    chain: Vec<NodeId>,
    /// The rows after it.
    rows: Rows,
    score: f64,
}

impl Search<'_> {
    fn times(&self, rows: &Rows) -> impl Iterator<Item = (f64, NodeId)> {
        let time = |(node, &rows): (&NodeId, &u64)| {
            (self.servers.get(node).map_or(0.0, |service| service.seconds(rows)), *node)
        };
        rows.iter().map(time)
    }

    fn slowest(&self) -> Option<(f64, NodeId)> {
        self.times(&self.rows).max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// Sum in which the slowest servers count for nearly all: of several that are as slow, one
    /// after the other gets less before the slowest time falls.
    fn score(&self, rows: &Rows, worst: f64) -> f64 {
        self.times(rows).map(|(time, _)| (time / worst).powi(SHARPNESS)).sum()
    }

    /// The move of a shard away from this server that saves most, if that is worth it.
    fn best_move(&self, worst: f64, from: NodeId) -> Option<Move> {
        let mut targets = Vec::from_iter(self.times(&self.rows));
        targets.retain(|(time, node)| *time <= 0.0 || !self.untried.contains(node));
        targets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut best: Option<Move> = None;
        for (shard, ((size, _), chain)) in self.shards.iter().zip(&self.chains).enumerate() {
            if !roles(chain).any(|node| node == from) {
                continue;
            }
            let others = targets.iter().filter(|(_, node)| !chain.contains(node));
            for &(_, to) in others.take(TARGETS) {
                // A server that joins a chain is its tail.
                let next = chain.iter().copied().filter(|&node| node != from).chain([to]);
                let next = Vec::from_iter(next);
                let mut rows = self.rows.clone();
                for node in roles(chain) {
                    rows.entry(node).and_modify(|rows| *rows = rows.saturating_sub(*size));
                }
                roles(&next).for_each(|node| *rows.entry(node).or_default() += size);
                let score = self.score(&rows, worst);
                if best.as_ref().is_none_or(|best| score < best.score) {
                    best = Some(Move { shard, chain: next, rows, score });
                }
            }
        }
        best.filter(|best| best.score < self.score(&self.rows, worst) * (1.0 - WORTH))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn servers(row_ns: &[u64]) -> BTreeMap<NodeId, ServiceTime> {
        let times = row_ns.iter().map(|&row_ns| ServiceTime { base_us: 0, row_ns });
        (0..).map(NodeId).zip(times).collect()
    }

    fn spread(count: u64, servers: u64, replicas: u64) -> Vec<(u64, Vec<NodeId>)> {
        let chain = |first| (0..replicas).map(|next| NodeId((first + next) % servers)).collect();
        (0..count).map(|shard| (100, chain(shard % servers))).collect()
    }

    fn counts(chains: &[Vec<NodeId>], servers: u64) -> Vec<usize> {
        let held = |node| chains.iter().filter(|chain| chain.contains(&NodeId(node))).count();
        (0..servers).map(held).collect()
    }

    #[test]
    fn slow_server_gets_what_it_does_in_the_others_time() {
        let plan = |count, row_ns: &[u64], replicas| {
            let shards = spread(count, row_ns.len() as u64, replicas);
            let chains = plan(&shards, &servers(row_ns), &BTreeSet::new(), 0.05);
            chains.map(|plan| counts(&plan.chains, row_ns.len() as u64))
        };
        assert_eq!(plan(16, &[10; 4], 1), None, "all are as fast");
        assert_eq!(plan(16, &[10, 80, 10, 10], 1), Some(vec![6, 0, 5, 5]));
        assert_eq!(plan(16, &[10, 40, 10, 10], 1), Some(vec![5, 1, 5, 5]));
        assert_eq!(plan(64, &[10, 80, 10, 10], 1), Some(vec![21, 2, 21, 20]));
        assert_eq!(plan(16, &[10, 80, 10, 10], 2), Some(vec![10, 1, 11, 10]));
        assert_eq!(plan(4, &[10, 80], 2), None, "as many servers as replicas");
    }

    #[test]
    fn one_server_with_everything_shares_it() {
        let shards: Vec<_> = (0..8).map(|_| (50, vec![NodeId(0)])).collect();
        let plan = plan(&shards, &servers(&[10; 4]), &BTreeSet::new(), 0.05).unwrap();
        assert_eq!(counts(&plan.chains, 4), [2, 2, 2, 2]);
        let untried = [NodeId(3)].into();
        let plan = super::plan(&shards, &servers(&[10; 4]), &untried, 0.05).unwrap();
        assert_eq!(counts(&plan.chains, 4), [3, 2, 2, 1]);
    }

    proptest! {
        #[test]
        fn plan_keeps_replicas_and_is_no_slower(
            row_ns in prop::collection::vec(1_u64..100, 2..6), count in 1_u64..24, replicas in 1_u64..3
        ) {
            let servers = servers(&row_ns);
            let before = spread(count, row_ns.len() as u64, replicas);
            let plan = plan(&before, &servers, &BTreeSet::new(), 0.05);
            let Some(Plan { chains, .. }) = plan else { return Ok(()) };
            let slowest = |chains: &[Vec<NodeId>]| {
                let rows = |node| chains.iter().flat_map(|chain| roles(chain))
                    .filter(|&other| other == node).count() as u64 * 100;
                servers.iter().map(|(&node, time)| time.seconds(rows(node))).fold(0.0, f64::max)
            };
            let old: Vec<_> = before.iter().map(|(_, chain)| chain.clone()).collect();
            prop_assert!(slowest(&chains) < slowest(&old));
            for chain in &chains {
                let mut different = chain.clone();
                different.sort_unstable();
                different.dedup();
                prop_assert_eq!(different.len() as u64, replicas);
            }
            prop_assert_eq!(chains.len(), before.len());
        }
    }
}
