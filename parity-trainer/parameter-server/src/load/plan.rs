//! Assignment of shards to servers.

use std::collections::{BTreeMap, BTreeSet};

use super::ServiceTime;
use crate::NodeId;

/// Moves in one plan, at most; the next one goes on.
const MOVES: usize = 64;

/// Servers that are tried for each shard: those that would be done first.
const TARGETS: usize = 4;

/// Part that a move must save among up to so many servers. Among more it is less: of several that
/// are as slow, a move helps one.
const WORTH: f64 = 0.01;
const FEW: usize = 4;

/// Nanoseconds a row of a server that is to be given none.
const NEVER_NS: u64 = 1 << 50;

/// Power of the times in the sum that moves make smaller: the slowest count for nearly all.
const SHARPNESS: i32 = 16;

/// Shards: their rows, and the servers that hold them, head first.
pub type Shards = [(u64, Vec<NodeId>)];

/// Rows that come to each server in a step, in those that all executors push; and those that it
/// answers pulls with.
type Work = BTreeMap<NodeId, [f64; 2]>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Servers {
    pub times: BTreeMap<NodeId, ServiceTime>,
    /// Servers of which no time is known yet: they get one shard, and show what they can do.
    pub untried: BTreeSet<NodeId>,
    pub executors: u64,
}

impl Servers {
    /// Adds the work of a chain's servers in a step, for so many rows: the head takes pushes, those
    /// that follow it take log entries while others are pushed, and then the tail answers pulls.
    fn add(&self, work: &mut Work, size: f64, chain: &[NodeId]) {
        let entry = 1.0 / self.executors.max(1) as f64;
        for (place, &node) in chain.iter().enumerate() {
            let [pushed, read] = work.entry(node).or_default();
            *pushed += size * if place == 0 { 1.0 } else { entry };
            *read += size * f64::from(place + 1 == chain.len());
        }
    }

    fn work(&self, shards: &Shards) -> Work {
        let mut all = Work::new();
        shards.iter().for_each(|(size, chain)| self.add(&mut all, *size as f64, chain));
        all
    }

    /// Each server's seconds for its work of both kinds.
    fn all(&self, work: &Work) -> impl Iterator<Item = ([f64; 2], NodeId)> {
        work.iter().map(|(node, &rows)| {
            let service = self.times.get(node);
            (service.map_or([0.0; 2], |service| service.seconds(rows)), *node)
        })
    }

    /// Servers that are the slowest at either kind of work, and the seconds of a step: no rows are
    /// read before all are pushed.
    fn worst(&self, work: &Work) -> ([NodeId; 2], f64) {
        let worst = [0, 1].map(|kind| {
            let times = self.all(work).map(|(times, node)| (times[kind], node));
            times.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or_default()
        });
        (worst.map(|(_, node)| node), worst.iter().map(|(time, _)| time).sum())
    }

    /// The seconds of a step, to which of several servers that are as slow each adds a little: one
    /// after the other gets less before the slowest time falls.
    fn score(&self, work: &Work) -> f64 {
        let norm = |kind: usize| {
            let times = || self.all(work).map(|(times, _)| times[kind]);
            let worst = times().fold(f64::MIN_POSITIVE, f64::max);
            let sum: f64 = times().map(|time| (time / worst).powi(SHARPNESS)).sum();
            worst * sum.powf(1.0 / f64::from(SHARPNESS))
        };
        norm(0) + norm(1)
    }

    /// Returns the seconds of a step with these shards.
    pub fn slowest(&self, shards: &Shards) -> f64 {
        self.worst(&self.work(shards)).1
    }
}

/// Other chains, and the seconds of a step before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub chains: Vec<Vec<NodeId>>,
    pub before: f64,
    pub after: f64,
}

/// Returns other chains for these shards under which the slowest servers take less time; `None` if
/// the best ones, which take so long before and after, are not worth it. Shards move one by one
/// from the slowest servers, so that their times fall most.
///
/// A server's time is known for about what it does so far. So it gets at most twice as many
/// shards, and twice as many to head, one if it has none: these chains may not save anything yet,
/// but the next plan's do.
pub fn plan(
    shards: &Shards,
    servers: &Servers,
    is_worth_it: impl Fn(f64, f64) -> bool,
) -> Option<Plan> {
    let best = best(shards, servers)?;
    let room = |node: NodeId, held: usize| match servers.untried.contains(&node) {
        true => held.max(1),
        false => 2 * held + 1,
    };
    let is_worth_it = is_worth_it(best.before, best.after);
    let next = is_worth_it.then(|| Search::new(shards, servers, room).run())??;
    let mut moves = shards.iter().zip(&next.chains);
    moves.any(|((_, old), new)| old != new).then_some(next)
}

/// Returns the best chains, whatever they move.
pub(crate) fn best(shards: &Shards, servers: &Servers) -> Option<Plan> {
    Search::new(shards, servers, |_, _| usize::MAX).run()
}

/// Returns chains without this server; `None` if it cannot be spared.
pub(crate) fn without(shards: &Shards, servers: &Servers, node: NodeId) -> Option<Plan> {
    let mut others = servers.clone();
    others.times.insert(node, ServiceTime { push_ns: NEVER_NS, read_ns: NEVER_NS });
    let plan = best(shards, &others)?;
    let is_spared = plan.chains.iter().all(|chain| !chain.contains(&node));
    is_spared.then(|| Plan { before: servers.slowest(shards), ..plan })
}

struct Search<'a> {
    shards: &'a Shards,
    servers: &'a Servers,
    /// Shards that each server may hold, and head.
    room: BTreeMap<NodeId, [usize; 2]>,
    chains: Vec<Vec<NodeId>>,
    work: Work,
}

struct Move {
    shard: usize,
    chain: Vec<NodeId>,
    work: Work,
    score: f64,
}

impl<'a> Search<'a> {
    /// `room` says how many shards a server may hold, or head, that does so for so many now.
    fn new(
        shards: &'a Shards,
        servers: &'a Servers,
        room: impl Fn(NodeId, usize) -> usize,
    ) -> Self {
        let mut work = servers.work(shards);
        for &node in servers.times.keys() {
            work.entry(node).or_default();
        }
        let chains = Vec::from_iter(shards.iter().map(|(_, chain)| chain.clone()));
        let held = held(&chains);
        let held = |node| held.get(&node).copied().unwrap_or_default();
        let room = |&node: &NodeId| (node, held(node).map(|count| room(node, count)));
        let room = work.keys().map(room).collect();
        Self { shards, servers, room, chains, work }
    }

    /// Moves shards as long as that saves something.
    fn run(mut self) -> Option<Plan> {
        let (_, before) = self.servers.worst(&self.work);
        for _ in 0..MOVES {
            let Some(best) = self.best_move() else { break };
            self.work = best.work;
            if let Some(chain) = self.chains.get_mut(best.shard) {
                *chain = best.chain;
            }
        }
        let (_, after) = self.servers.worst(&self.work);
        (before > 0.0).then_some(Plan { chains: self.chains, before, after })
    }

    /// Servers that may get a shard, those first that would be done first.
    fn targets(&self, room: &BTreeMap<NodeId, [bool; 2]>) -> Vec<NodeId> {
        let mut targets = Vec::from_iter(self.servers.all(&self.work));
        targets.retain(|(_, node)| room.get(node).is_some_and(|room| room[0]));
        let total = |(times, _): &([f64; 2], NodeId)| times.iter().sum::<f64>();
        targets.sort_by(|one, other| total(one).total_cmp(&total(other)));
        targets.into_iter().map(|(_, node)| node).collect()
    }

    /// Returns of each server if it may hold one more shard, and head one more.
    fn has_room(&self) -> BTreeMap<NodeId, [bool; 2]> {
        let held = held(&self.chains);
        let has_room = |(&node, room): (&NodeId, &[usize; 2])| {
            let [held, heads] = held.get(&node).copied().unwrap_or_default();
            (node, [held < room[0], heads < room[1]])
        };
        self.room.iter().map(has_room).collect()
    }

    /// The move of a shard away from a slowest server that saves most, if that is worth it.
    fn best_move(&self) -> Option<Move> {
        let room = self.has_room();
        let targets = self.targets(&room);
        let (worst, _) = self.servers.worst(&self.work);
        let mut best: Option<Move> = None;
        for (shard, (&(size, _), chain)) in self.shards.iter().zip(&self.chains).enumerate() {
            for from in worst.iter().filter(|node| chain.contains(node)) {
                let others = targets.iter().filter(|node| !chain.contains(node)).take(TARGETS);
                let is_head = chain.len() > 1 && chain.first() == Some(from);
                for &to in others.chain(is_head.then_some(from)) {
                    // A server that joins a chain is its tail, and a head may become it.
                    let next = chain.iter().copied().filter(|node| node != from).chain([to]);
                    let next = Vec::from_iter(next);
                    let (old, new) = (chain.first(), next.first());
                    let has_room = new.and_then(|head| room.get(head)).is_some_and(|room| room[1]);
                    if old != new && !has_room {
                        continue;
                    }
                    let mut work = self.work.clone();
                    self.servers.add(&mut work, -(size as f64), chain);
                    self.servers.add(&mut work, size as f64, &next);
                    let score = self.servers.score(&work);
                    if best.as_ref().is_none_or(|best| score < best.score) {
                        best = Some(Move { shard, chain: next, work, score });
                    }
                }
            }
        }
        let worth = WORTH * FEW as f64 / self.servers.times.len().max(FEW) as f64;
        best.filter(|best| best.score < self.servers.score(&self.work) * (1.0 - worth))
    }
}

/// Shards that each server holds, and those that it heads.
fn held(chains: &[Vec<NodeId>]) -> BTreeMap<NodeId, [usize; 2]> {
    let mut all: BTreeMap<NodeId, [usize; 2]> = BTreeMap::new();
    for (place, &node) in chains.iter().flat_map(|chain| chain.iter().enumerate()) {
        let [held, heads] = all.entry(node).or_default();
        *held += 1;
        *heads += usize::from(place == 0);
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn servers(row_ns: &[u64]) -> Servers {
        let times = row_ns.iter().map(|&ns| ServiceTime { push_ns: ns, read_ns: ns });
        let times = (0..).map(NodeId).zip(times).collect();
        Servers { times, executors: 4, ..Servers::default() }
    }

    fn spread(count: u64, servers: u64, replicas: u64) -> Vec<(u64, Vec<NodeId>)> {
        let chain = |first| (0..replicas).map(|next| NodeId((first + next) % servers)).collect();
        (0..count).map(|shard| (100, chain(shard % servers))).collect()
    }

    fn counts(chains: &[Vec<NodeId>], servers: u64) -> Vec<usize> {
        let held = |node| chains.iter().filter(|chain| chain.contains(&NodeId(node))).count();
        (0..servers).map(held).collect()
    }

    fn is_worth_it(before: f64, after: f64) -> bool {
        after < before * 0.95
    }

    #[test]
    fn slow_server_gets_what_it_does_in_the_others_time() {
        let plan = |count, row_ns: &[u64], replicas| {
            let shards = spread(count, row_ns.len() as u64, replicas);
            let chains = plan(&shards, &servers(row_ns), is_worth_it);
            chains.map(|plan| counts(&plan.chains, row_ns.len() as u64))
        };
        assert_eq!(plan(16, &[10; 4], 1), None, "all are as fast");
        assert_eq!(plan(16, &[10, 80, 10, 10], 1), Some(vec![6, 0, 5, 5]));
        assert_eq!(plan(16, &[10, 40, 10, 10], 1), Some(vec![5, 1, 5, 5]));
        assert_eq!(plan(64, &[10, 80, 10, 10], 1), Some(vec![21, 2, 21, 20]));
        assert_eq!(plan(4, &[10, 80], 2), None, "as many servers as replicas");
        let slow = plan(16, &[10, 80, 10, 10], 2).unwrap()[1];
        assert!(slow <= 2, "{slow} shards at an eighth of the speed");
    }

    /// Pushes take four times as long as reads.
    #[test]
    fn heads_are_spread_by_the_time_of_their_pushes() {
        let chain = |nodes: [u64; 2]| (100, nodes.map(NodeId).to_vec());
        let shards = [chain([0, 1]), chain([0, 1]), chain([0, 2]), chain([0, 2])];
        assert_eq!(
            Vec::from_iter(servers(&[]).work(&shards).into_values()),
            [[400.0, 0.0], [50.0, 200.0], [50.0, 200.0]]
        );
        let mut servers = servers(&[10; 4]);
        servers.times.values_mut().for_each(|time| time.push_ns = 40);
        assert!((servers.slowest(&shards) - 18e-6).abs() < 1e-9, "pushes, then reads");
        let plan = plan(&shards, &servers, is_worth_it).unwrap();
        let heads = |node| plan.chains.iter().filter(|chain| chain[0] == NodeId(node)).count();
        assert!(heads(0) <= 2, "{plan:?}");
    }

    #[test]
    fn one_server_with_everything_shares_it() {
        let shards = Vec::from_iter((0..8).map(|_| (50, vec![NodeId(0)])));
        let servers = |untried: &[u64]| Servers {
            untried: untried.iter().copied().map(NodeId).collect(),
            ..servers(&[10; 4])
        };
        let counts = |servers| counts(&plan(&shards, &servers, is_worth_it).unwrap().chains, 4);
        assert_eq!(counts(servers(&[])), [5, 1, 1, 1], "what they can do is seen first");
        let held = [0, 0, 0, 0, 0, 1, 2, 3].map(|node| (50, vec![NodeId(node)]));
        let counts = |servers| {
            super::plan(&held, &servers, is_worth_it).map(|plan| self::counts(&plan.chains, 4))
        };
        assert_eq!(counts(servers(&[])), Some(vec![2, 2, 2, 2]));
    }

    /// The last server heads one shard, and is the tail of two; with so little it seems quick.
    #[test]
    fn server_heads_at_most_twice_as_many_shards_as_before() {
        let chain = |nodes: [u64; 2]| (100, nodes.map(NodeId).to_vec());
        let mut shards = spread(15, 3, 2);
        shards.extend([chain([3, 0]), chain([1, 3]), chain([2, 3])]);
        let mut servers = servers(&[100, 100, 100, 10]);
        servers.times.values_mut().for_each(|time| time.read_ns = 1);
        let plan = plan(&shards, &servers, is_worth_it).unwrap();
        let heads = plan.chains.iter().filter(|chain| chain[0] == NodeId(3)).count();
        assert_eq!(heads, 3, "{plan:?}");
    }

    #[test]
    fn tenth_of_many_servers_gets_its_part() {
        let shards = spread(90, 9, 1);
        let plan = plan(&shards, &servers(&[10; 10]), |before, after| after < before * 0.95);
        assert_eq!(counts(&plan.unwrap().chains, 10)[9], 1, "of nine, when it has shown its time");
    }

    proptest! {
        #[test]
        fn plan_keeps_replicas_and_is_no_slower(
            row_ns in prop::collection::vec(1_u64..100, 2..6), count in 1_u64..24, replicas in 1_u64..3
        ) {
            let servers = servers(&row_ns);
            let before = spread(count, row_ns.len() as u64, replicas);
            let Some(Plan { chains, .. }) = plan(&before, &servers, is_worth_it) else { return Ok(()) };
            prop_assert_eq!(chains.len(), before.len());
            for chain in &chains {
                let different: BTreeSet<_> = chain.iter().collect();
                prop_assert_eq!(different.len() as u64, replicas);
            }
            let after = before.iter().zip(chains).map(|((size, _), chain)| (*size, chain));
            let after = Vec::from_iter(after);
            prop_assert!(servers.slowest(&after) <= servers.slowest(&before));
        }
    }
}
