//! Load distribution, after PSLD: a model of each server's service time, and chains that keep the
//! slowest server's time short.
//!
//! The time that servers themselves take, waits for other workers among it, is not counted: they
//! say how long they have held a request. What is left is the way to them and back, and their
//! queues, which are long where a link or a server is slow.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use plan::{Plan, Servers, Shards, plan};
pub(crate) use plan::{best, without};

use crate::{ArrayId, KeyRange, NodeId};

/// Weight of what was seen one observation earlier, at least; and the time after which 1/e of it is
/// left, if that is more. Servers that are as fast differ by a fifth from one second to the next,
/// and with the shards that they hold.
const MEMORY: (f64, Duration) = (0.95, Duration::from_secs(60));

/// The same of a sum that shows changes: a server whose processor is throttled stands still every
/// tenth of a second, and is fast in between.
const RECENT: (f64, Duration) = (0.8, Duration::from_secs(2));

/// Part of the weight that is left when shards have moved: what they save is to be seen soon.
const SETTLED: f64 = 0.1;

/// Factor by which the times of the last seconds differ from earlier ones if a server has changed.
const CHANGED: f64 = 1.5;

/// Factor by which a server's two times may be in another ratio than others' by chance: which of the
/// servers answers first, and how many log entries are on the way before a pull.
const CHANCE: f64 = 3.0;

/// Observations before an estimate, by weight.
const LEAST: f64 = 4.0;

/// Rank, in hundredths of standard deviations, that steps of the same times have by chance once in a
/// hundred trials.
const SURE: u64 = 258;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowTimes {
    pub count: u64,
    pub took: Duration,
}

/// Work that a server has done for a client. The time that it held requests does not count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServedBy {
    pub node: NodeId,
    /// Rows that it took as a head.
    pub pushed: RowTimes,
    /// Rows of the log entries that it took, on the same way as what is pushed to it.
    pub logged: u64,
    /// Rows that it took from the heads of its chains, or sent on as one, and those that were
    /// pulled.
    pub read: RowTimes,
}

/// Service time of a server for each row that all executors push to it as a head; and for each that
/// it sends on as one, takes from other heads, or answers pulls with. A row from another head comes
/// on the way of pushes, too, and takes the time of one executor's there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ServiceTime {
    pub push_ns: u64,
    pub read_ns: u64,
}

impl ServiceTime {
    /// Returns the seconds for so many rows of each kind.
    pub fn seconds(self, [pushed, read]: [f64; 2]) -> [f64; 2] {
        [self.push_ns as f64 * pushed / 1e9, self.read_ns as f64 * read / 1e9]
    }

    /// Returns true if they differ by more than a twentieth.
    pub const fn is_far_from(self, other: Self) -> bool {
        const fn is_far(own: u64, other: u64) -> bool {
            20 * own > 21 * other || 21 * own < 20 * other
        }
        is_far(self.push_ns, other.push_ns) || is_far(self.read_ns, other.read_ns)
    }
}

/// Times a server's row, forgetting: old observations lose 1/20 of their weight with each new one,
/// or less where these come fast, and all of it when the server has changed.
///
/// PSLD has a constant time besides. The rows of a server hardly change between moves, and vary
/// by chance with the parts that are sent again: least squares then take nearly all of the time for
/// constant, and every server for fast.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServiceModel {
    long: Sums,
    recent: Sums,
}

/// Rows and seconds of pushes and of reads, and the weight of all observations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sums {
    weight: f64,
    kinds: [[f64; 2]; 2],
}

impl ServiceModel {
    /// Begins anew, from what is known: it has other shards from now on.
    pub fn settle(&mut self) {
        self.recent = Sums::default();
        self.long.kinds = self.long.kinds.map(|sums| sums.map(|sum| sum * SETTLED));
    }

    /// Takes in an observation of so many executors' steps, so long after the last one. Returns true
    /// if the server has changed.
    pub fn observe(&mut self, served: &ServedBy, executors: usize, after: Duration) -> bool {
        let kept = |(least, time)| (-after.div_duration_f64(time)).exp().max(least);
        self.long.observe(served, executors, kept(MEMORY));
        self.recent.observe(served, executors, kept(RECENT));
        let nanos = self.long.nanos().into_iter().zip(self.recent.nanos());
        let sums = self.long.kinds.iter_mut().zip(self.recent.kinds);
        let mut is_changed = false;
        for ((long, recent), (old, new)) in sums.zip(nanos) {
            let change = new.zip(old).map(|(new, old)| new / old);
            if change.is_some_and(|change| !(1.0 / CHANGED..CHANGED).contains(&change)) {
                *long = recent;
                is_changed = true;
            }
        }
        is_changed
    }
}

impl Sums {
    /// Takes in an observation; of what was there before, a part is kept.
    fn observe(&mut self, served: &ServedBy, executors: usize, kept: f64) {
        self.weight = self.weight * kept + 1.0;
        let ServedBy { pushed, logged, read, .. } = *served;
        // A server that is no head shows nothing of the time of pushes.
        let logged = if pushed.count > 0 { logged as f64 / executors.max(1) as f64 } else { 0.0 };
        for (sum, (rows, more)) in self.kinds.iter_mut().zip([(pushed, logged), (read, 0.0)]) {
            let [count, seconds] = *sum;
            let count = count * kept + rows.count as f64 + more;
            *sum = [count, seconds * kept + rows.took.as_secs_f64()];
        }
    }

    /// Nanoseconds for a row of each kind, if there were rows; nothing after too few observations.
    fn nanos(&self) -> [Option<f64>; 2] {
        self.kinds.map(|[count, seconds]| {
            (self.weight >= LEAST && count > 0.0).then_some((seconds / count * 1e9).max(1.0))
        })
    }
}

/// Returns the service times of the servers that are known. One that did rows of one kind alone
/// takes for the other kind as many times more or less as servers usually do; and so does one that
/// did both, unless its reads are far from that.
pub fn estimates<'a>(
    models: impl IntoIterator<Item = (NodeId, &'a ServiceModel)>,
) -> BTreeMap<NodeId, ServiceTime> {
    let known = models.into_iter().map(|(node, model)| (node, model.long.nanos()));
    let known = Vec::from_iter(known);
    let both = known.iter().filter_map(|(_, [push, read])| Some((*push)? / (*read)?));
    let mut both = Vec::from_iter(both);
    both.sort_unstable_by(f64::total_cmp);
    let usual = both.get(both.len() / 2).copied().unwrap_or(1.0);
    let time = |(node, [push, read]): (NodeId, [Option<f64>; 2])| {
        let is_chance = |read: f64| {
            push.is_some_and(|push| (1.0 / CHANCE..CHANCE).contains(&(read * usual / push)))
        };
        let read = read.filter(|&read| !is_chance(read));
        let push_ns = push.or(read.map(|read| read * usual))?.round() as u64;
        let read_ns = read.or(push.map(|push| push / usual))?.round() as u64;
        Some((node, ServiceTime { push_ns, read_ns }))
    };
    known.into_iter().filter_map(time).collect()
}

/// Chains that load distribution has chosen, in place of those of the ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadPlan {
    pub chains: Vec<(ArrayId, KeyRange, Vec<NodeId>)>,
    /// Standbys that have shards, or are to have some.
    #[serde(default)]
    pub standbys: BTreeSet<NodeId>,
    /// It is an earlier one: under the one after it steps were longer.
    #[serde(default)]
    pub taken_back: bool,
    /// Shards that it moved, and the time of the slowest server before and after, as predicted; of
    /// one that was taken back, medians of steps.
    pub moved: usize,
    pub before_us: u64,
    pub after_us: u64,
}

/// Medians of a training's steps before the last load plan and under it, and the rank test of them
/// (Mann and Whitney).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepTimes {
    pub before_us: u64,
    pub after_us: u64,
    /// Hundredths of standard deviations by which steps rank as longer than before.
    pub rank: i64,
}

impl StepTimes {
    pub fn compare(before: &[Duration], after: &[Duration]) -> Self {
        let median = |times: &[Duration]| median(times).map_or(0, |time| time.as_micros() as u64);
        let pairs = after.iter().flat_map(|time| before.iter().map(move |other| time.cmp(other)));
        let longer: i64 = pairs.map(|order| order as i64).sum();
        let (n, m) = (before.len() as f64, after.len() as f64);
        let deviation = (n * m * (n + m + 1.0) / 3.0).sqrt();
        let rank = (longer as f64 / deviation * 100.0) as i64;
        Self { before_us: median(before), after_us: median(after), rank }
    }

    /// Returns the part by which steps have become longer, below zero for shorter, if that is no
    /// chance.
    pub(crate) fn change(self) -> Option<f64> {
        let change = self.after_us as f64 / self.before_us.max(1) as f64 - 1.0;
        (self.rank.unsigned_abs() > SURE && self.rank.signum() as f64 == change.signum())
            .then_some(change)
    }
}

/// Returns the median; of an even number the greater one.
pub fn median<T: Ord>(times: impl IntoIterator<Item = T>) -> Option<T> {
    let mut sorted = Vec::from_iter(times);
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    sorted.into_iter().nth(middle)
}

/// Returns the median of what workers say of each server.
pub fn medians(
    told: impl IntoIterator<Item = (NodeId, ServiceTime)>,
) -> BTreeMap<NodeId, ServiceTime> {
    let mut all: BTreeMap<NodeId, Vec<ServiceTime>> = BTreeMap::new();
    for (node, time) in told {
        all.entry(node).or_default().push(time);
    }
    all.into_iter().filter_map(|(node, times)| Some((node, median(times)?))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn rows(count: u64, ms: u64) -> RowTimes {
        RowTimes { count, took: Duration::from_millis(ms) }
    }

    fn model(times: &[(RowTimes, RowTimes)]) -> ServiceModel {
        let mut model = ServiceModel::default();
        for &(pushed, read) in times {
            let served = ServedBy { node: NodeId(1), pushed, logged: 0, read };
            for _ in 0..20 {
                model.observe(&served, 1, Duration::from_secs(1));
            }
        }
        model
    }

    fn estimate(times: &[(RowTimes, RowTimes)]) -> Option<ServiceTime> {
        estimates([(NodeId(1), &model(times))]).remove(&NodeId(1))
    }

    #[test]
    fn estimate_follows_the_time_a_row() {
        assert_eq!(estimate(&[]), None, "nothing was observed");
        let before = (rows(400, 8), rows(100, 1));
        let time = ServiceTime { push_ns: 20_000, read_ns: 10_000 };
        assert_eq!(estimate(&[before]), Some(time));
        assert_eq!(estimate(&[before, (rows(200, 4), rows(300, 3))]), Some(time), "other rows");
        let slow = estimate(&[before, (rows(400, 64), rows(100, 8))]).unwrap();
        assert!((100_000..160_000).contains(&slow.push_ns), "eight times as slow: {slow:?}");
    }

    #[test]
    fn time_under_other_shards_is_soon_that_of_the_last_seconds() {
        let mut model = ServiceModel::default();
        let mut observe = |ms: u64, seconds: u64| {
            let (pushed, read) = (rows(100, ms), rows(0, 0));
            let served = ServedBy { node: NodeId(1), pushed, logged: 0, read };
            for _ in 0..10 * seconds {
                model.observe(&served, 1, Duration::from_millis(100));
            }
            let estimate = model.long.nanos()[0].unwrap() / 1e3;
            model.settle();
            estimate.round() as u64
        };
        assert_eq!(observe(10, 60), 100);
        assert!((120..130).contains(&observe(13, 8)), "by less than what is a change");
    }

    /// A quarter of a processor: a stall of 75 ms in each tenth of a second.
    #[test]
    fn stalls_of_a_throttled_server_count_whenever_it_is_looked_at() {
        let mut model = ServiceModel::default();
        for step in 0..500 {
            let took = if step % 10 == 0 { 85 } else { 10 };
            let (node, pushed, read) = (NodeId(1), rows(1000, took), rows(0, 0));
            let served = ServedBy { node, pushed, logged: 0, read };
            model.observe(&served, 1, Duration::from_millis(took));
            if step > 200 {
                let [pushed, _] = model.long.nanos();
                assert!((16.5e3..18.5e3).contains(&pushed.unwrap()), "{pushed:?} at {step}");
            }
        }
    }

    /// A head of 100 rows, to which four executors push, takes log entries of 200 on the same way.
    #[test]
    fn log_entries_count_among_pushes_as_one_executors() {
        let mut model = ServiceModel::default();
        for logged in [0_u32, 200, 400] {
            let pushed = RowTimes {
                count: 100,
                took: Duration::from_micros(10_000 + 25 * u64::from(logged)),
            };
            let served =
                ServedBy { node: NodeId(1), pushed, logged: logged.into(), read: rows(0, 0) };
            for _ in 0..20 {
                model.observe(&served, 4, Duration::from_secs(1));
            }
            assert_eq!(estimates([(NodeId(1), &model)])[&NodeId(1)].push_ns, 100_000);
        }
        let log_alone =
            ServedBy { node: NodeId(1), pushed: rows(0, 0), logged: 9, read: rows(9, 3) };
        let mut model = ServiceModel::default();
        for _ in 0..20 {
            model.observe(&log_alone, 4, Duration::from_secs(1));
        }
        assert_eq!(model.long.nanos()[0], None);
    }

    #[test]
    fn rows_that_a_server_never_did_take_as_long_as_is_usual_for_its_others() {
        let both = model(&[(rows(100, 4), rows(100, 1))]);
        let head = model(&[(rows(100, 8), rows(0, 0))]);
        let tail = model(&[(rows(0, 0), rows(100, 3))]);
        let nodes = (1..).map(NodeId);
        let found = Vec::from_iter(estimates(nodes.zip([&both, &head, &tail])).into_values());
        let time = |push_us: u64, read_us: u64| ServiceTime {
            push_ns: push_us * 1000,
            read_ns: read_us * 1000,
        };
        assert_eq!(found, [time(40, 10), time(80, 20), time(120, 30)]);
        let alone = estimates([(NodeId(3), &tail)]);
        assert_eq!(alone[&NodeId(3)], time(30, 30));
        // Reads vary by chance, but not that much.
        let [lucky, slow] = [2, 9].map(|ms| model(&[(rows(100, 4), rows(100, ms))]));
        let found = estimates((1..).map(NodeId).zip([&both, &both, &lucky, &slow]));
        assert_eq!(Vec::from_iter(found.into_values())[2..], [time(40, 10), time(40, 90)]);
    }
}
