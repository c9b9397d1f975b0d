//! Instances that answer, but badly: ejected for a while, as Envoy's outlier detection does it.
//!
//! Health checks ask whether an instance is ready, and it may say so while every prediction of it fails. Here the requests
//! themselves are the judges: an instance that fails so many in a row, or too large a share of its recent ones, gets none
//! for some time; twice as long, three times as long if it fails again. After that it is on probation: one failure ejects
//! it anew, a success clears it. At most a share of a pool is ejected at the same time: where most instances fail, the fault
//! lies with the queries or the model, and fewer instances would not help.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::{FailureKind, InstanceId, Time};

/// When an instance is ejected, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutlierConfig {
    /// Failures in a row that eject; 0 for never.
    pub consecutive: u32,
    /// Share of its last 32 requests whose failure ejects an instance, if it is more than this.
    pub failed_share: f64,
    /// For how long, the first time.
    pub ejected_for: Duration,
    /// And at most.
    pub ejected_for_at_most: Duration,
    /// Most of a pool's instances that are ejected at the same time, rounded down.
    pub max_share: f64,
}

/// Requests by whose share of failures an instance is judged; a bit of a word each.
const WINDOW: u32 = 32;

impl Default for OutlierConfig {
    fn default() -> Self {
        Self {
            consecutive: 5,
            failed_share: 0.5,
            ejected_for: Duration::from_secs(5),
            ejected_for_at_most: Duration::from_secs(60),
            max_share: 0.5,
        }
    }
}

#[derive(Debug, Default)]
struct Record {
    /// The last requests, a bit for each that failed; the latest is the lowest.
    recent: u32,
    seen: u32,
    /// Ejections since it last did well for a whole window.
    ejections: u32,
    on_probation: bool,
}

/// What is known of instances by their answers.
#[derive(Debug)]
pub(crate) struct Outliers {
    config: OutlierConfig,
    records: FxHashMap<InstanceId, Record>,
}

impl Outliers {
    pub(crate) fn new(config: OutlierConfig) -> Self {
        Self { config, records: FxHashMap::default() }
    }

    /// How many of a pool of `instances` may be ejected at the same time.
    pub(crate) fn most_ejected(&self, instances: usize) -> usize {
        (instances as f64 * self.config.max_share) as usize
    }

    /// A request ended. Until when its instance is to be ejected, if it is.
    pub(crate) fn ended(
        &mut self,
        now: Time,
        instance: InstanceId,
        failure: Option<FailureKind>,
    ) -> Option<Time> {
        let failed = match failure {
            None => false,
            Some(failure) if failure.speaks_against_instance() => true,
            Some(_) => return None,
        };
        if self.config.consecutive == 0 {
            return None;
        }
        let record = self.records.entry(instance).or_default();
        record.recent = record.recent << 1 | u32::from(failed);
        record.seen = (record.seen + 1).min(WINDOW);
        if !failed {
            record.on_probation = false;
            if record.seen == WINDOW && record.recent == 0 {
                record.ejections = 0;
            }
            return None;
        }
        let in_a_row = record.recent.trailing_ones() >= self.config.consecutive.min(WINDOW);
        let share = f64::from(record.recent.count_ones()) / f64::from(WINDOW);
        let often = record.seen == WINDOW && share > self.config.failed_share;
        if !(in_a_row || often || record.on_probation) {
            return None;
        }
        let times = record.ejections.saturating_add(1);
        Some(now + self.config.ejected_for.saturating_mul(times).min(self.config.ejected_for_at_most))
    }

    /// It is gone. What it has in flight may end still, and is remembered: a word for each instance that ever left.
    pub(crate) fn forget(&mut self, instance: InstanceId) {
        self.records.remove(&instance);
    }

    /// How many of its last requests failed, and of how many; how many times in a row it was ejected.
    pub(crate) fn record(&self, instance: InstanceId) -> ((u32, u32), u32) {
        self.records
            .get(&instance)
            .map_or(((0, 0), 0), |record| ((record.recent.count_ones(), record.seen), record.ejections))
    }

    /// It was ejected.
    pub(crate) fn ejected(&mut self, instance: InstanceId) {
        let record = self.records.entry(instance).or_default();
        let ejections = record.ejections.saturating_add(1);
        *record = Record { ejections, on_probation: true, ..Record::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolId;
    use proptest::prelude::*;

    const INSTANCE: InstanceId = InstanceId { pool: PoolId::DEPLOYED, index: 0 };
    const SECOND: Duration = Duration::from_secs(1);

    /// For how many seconds each of these ends ejects: `x` for a failure, `.` for a success, `b` for a busy instance.
    fn ejections(ends: &str) -> Vec<Option<u64>> {
        let mut outliers = Outliers::new(OutlierConfig::default());
        let now = Time::ZERO + SECOND;
        let mut each = Vec::new();
        for end in ends.chars() {
            let failure = match end {
                'x' => Some(FailureKind::InstanceError),
                'b' => Some(FailureKind::InstanceBusy),
                _ => None,
            };
            let until = outliers.ended(now, INSTANCE, failure);
            if until.is_some() {
                outliers.ejected(INSTANCE);
            }
            each.push(until.map(|until| until.since(now).as_secs()));
        }
        each
    }

    #[test]
    fn failures_in_a_row_eject_and_each_time_for_longer() {
        assert_eq!(ejections("xxxx.xxxxx").iter().flatten().count(), 1);
        assert_eq!(ejections("xxxxx")[4], Some(5));
        assert_eq!(ejections("xxxxxx")[5], Some(10), "one failure on probation is enough");
        assert_eq!(ejections("xxxxx.xxxx")[9], None, "a success ends probation");
        assert_eq!(ejections(&"x".repeat(30))[29], Some(60), "never longer than that");
        let redeemed = format!("xxxxx{}xxxxx", ".".repeat(40));
        assert_eq!(ejections(&redeemed)[49], Some(5), "old failures are forgotten");
    }

    #[test]
    fn too_large_a_share_of_failures_ejects_and_busy_instances_are_none() {
        assert!(ejections(&"xx.".repeat(20)).iter().any(Option::is_some));
        assert!(ejections(&"x.".repeat(40)).iter().all(Option::is_none), "half is not more than half");
        assert!(ejections(&"b".repeat(40)).iter().all(Option::is_none));
    }

    proptest! {
        #[test]
        fn who_never_fails_is_never_ejected(ends in "[.b]{0,100}") {
            prop_assert!(ejections(&ends).iter().all(Option::is_none));
        }

        #[test]
        fn a_pool_never_loses_more_than_its_share(instances in 0usize..200) {
            let most = Outliers::new(OutlierConfig::default()).most_ejected(instances);
            prop_assert!(most * 2 <= instances);
        }
    }
}
