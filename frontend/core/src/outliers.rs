//! Instances that answer, but badly: ejected for a while, as Envoy's outlier detection does it.
//!
//! Health checks ask whether an instance is ready, and it may say so while every prediction of it
//! fails. Here the requests themselves are the judges: an instance that fails so many in a row, or
//! too large a share of its recent ones, gets none for some time; twice as long, three times as
//! long if it fails again. After that it is on probation: one failure ejects it anew, a success
//! clears it. At most a share of a pool is ejected at the same time: where most instances fail, the
//! fault lies with the queries or the model, and fewer instances would not help. A failure that the
//! input may have caused comes here only when it is proven to be the instance's (`core/blame.rs`).
//! Retries prove it. Of the reserve of their budget each instance has one in [`CONFIRM_EVERY`] for
//! the queries of a domain, so that five failures are proven within some seconds, whatever the
//! queries of other domains are like.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::{DomainId, FailureKind, InstanceId, Time};

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
/// Least time between two retries from the reserve, for one instance and one share of the domains.
pub(crate) const CONFIRM_EVERY: Duration = Duration::from_millis(200);
/// Least time without a good answer that ejects an instance where nothing proves failures.
const WITHOUT_PROOF: Duration = Duration::from_secs(5);
/// Shares of the domains, which have their retries apart from each other.
const CONFIRM_SHARES: usize = 8;

impl OutlierConfig {
    fn ejected_until(&self, now: Time, record: &Record) -> Time {
        let times = record.ejections.saturating_add(1);
        now + self.ejected_for.saturating_mul(times).min(self.ejected_for_at_most)
    }
}

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
    /// Time from which the next retry from the reserve is allowed, by share of the domains.
    confirm_at: [Time; CONFIRM_SHARES],
    /// Unproven failures since the last success, and the time of the first.
    unproven: (u32, Time),
}

/// Record of instances' answers, for the ejection of outliers.
#[derive(Debug)]
pub(crate) struct Outliers {
    config: OutlierConfig,
    records: FxHashMap<InstanceId, Record>,
}

impl Outliers {
    pub(crate) fn new(config: OutlierConfig) -> Self {
        Self { config, records: FxHashMap::default() }
    }

    /// Limit of instances of a pool of `instances` that may be ejected at the same time.
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
            Some(failure) if failure.counts_as_instance_failure() => true,
            Some(_) => return None,
        };
        if self.config.consecutive == 0 {
            return None;
        }
        let record = self.records.entry(instance).or_default();
        record.recent = record.recent << 1 | u32::from(failed);
        record.seen = (record.seen + 1).min(WINDOW);
        if !failed {
            record.unproven.0 = 0;
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
        Some(self.config.ejected_until(now, record))
    }

    /// A request failed, and nothing has proven yet what is at fault. Until when its instance is to
    /// be ejected if nothing ever can: when it has answered nothing well for [`WITHOUT_PROOF`] and
    /// a whole window of requests.
    pub(crate) fn unproven(&mut self, now: Time, instance: InstanceId) -> Option<Time> {
        if self.config.consecutive == 0 {
            return None;
        }
        let record = self.records.entry(instance).or_default();
        let (failures, since) = &mut record.unproven;
        if *failures == 0 {
            *since = now;
        }
        *failures = (*failures + 1).min(WINDOW);
        let is_bad = *failures == WINDOW && now.since(*since) >= WITHOUT_PROOF;
        is_bad.then(|| self.config.ejected_until(now, record))
    }

    /// Returns whether the instance lately answered something well, so that its failure says
    /// something about the input.
    pub(crate) fn is_credible(&self, instance: InstanceId) -> bool {
        let most = self.config.consecutive.max(1);
        self.records.get(&instance).is_none_or(|record| record.unproven.0 < most)
    }

    /// Returns whether a query of `domain` that `instance` failed may be sent to another one from
    /// the reserve of retries.
    pub(crate) fn may_confirm(
        &mut self,
        now: Time,
        instance: InstanceId,
        domain: DomainId,
    ) -> bool {
        if self.config.consecutive == 0 {
            return false;
        }
        let record = self.records.entry(instance).or_default();
        let Some(at) = record.confirm_at.get_mut(domain.0 as usize % CONFIRM_SHARES) else {
            return false;
        };
        let allowed = now >= *at;
        if allowed {
            *at = now + CONFIRM_EVERY;
        }
        allowed
    }

    /// It is gone. What it has in flight may end and is remembered: a word per instance ever gone.
    pub(crate) fn forget(&mut self, instance: InstanceId) {
        self.records.remove(&instance);
    }

    /// Returns the failures among the latest requests, their number, and the ejections in a row.
    pub(crate) fn record(&self, instance: InstanceId) -> ((u32, u32), u32) {
        self.records.get(&instance).map_or(((0, 0), 0), |record| {
            ((record.recent.count_ones(), record.seen), record.ejections)
        })
    }

    pub(crate) fn ejected(&mut self, instance: InstanceId) {
        let record = self.records.entry(instance).or_default();
        let ejections = record.ejections.saturating_add(1);
        let confirm_at = record.confirm_at;
        *record = Record { ejections, on_probation: true, confirm_at, ..Record::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolId;
    use proptest::prelude::*;

    const INSTANCE: InstanceId = InstanceId { pool: PoolId::DEPLOYED, index: 0 };
    const SECOND: Duration = Duration::from_secs(1);

    /// For how many seconds each of these ends ejects: `x` for a failure, `.` for a success, `b`
    /// for a busy instance.
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
        assert_eq!(
            ejections("xxxxx.xxxxx")[10],
            Some(10),
            "a few successes do not shorten the next ejection"
        );
        assert_eq!(ejections(&"x".repeat(30))[29], Some(60), "never longer than that");
        let redeemed = format!("xxxxx{}xxxxx", ".".repeat(40));
        assert_eq!(ejections(&redeemed)[49], Some(5), "old failures are forgotten");
    }

    #[test]
    fn each_domain_has_retries_of_its_own_from_the_reserve() {
        let mut outliers = Outliers::new(OutlierConfig::default());
        let mut may_confirm = |now, domain| outliers.may_confirm(now, INSTANCE, DomainId(domain));
        let now = Time::ZERO + SECOND;
        assert!(may_confirm(now, 1) && !may_confirm(now, 1), "one at a time");
        assert!(may_confirm(now, 2), "another domain is not held up");
        assert!(!may_confirm(now + CONFIRM_EVERY / 2, 1) && may_confirm(now + CONFIRM_EVERY, 1));
    }

    #[test]
    fn unproven_failures_eject_after_a_window_and_some_seconds_without_a_success() {
        let mut outliers = Outliers::new(OutlierConfig::default());
        let at = |seconds: u32| Time::ZERO + SECOND * seconds;
        let fail = |outliers: &mut Outliers, seconds, times: u32| {
            (0..times).find_map(|_| outliers.unproven(at(seconds), INSTANCE))
        };
        assert_eq!(fail(&mut outliers, 1, 1000), None, "not for long");
        assert_eq!(outliers.ended(at(5), INSTANCE, None), None);
        assert_eq!(fail(&mut outliers, 6, 31), None, "since the success");
        assert_eq!(fail(&mut outliers, 10, 1000), None);
        assert_eq!(fail(&mut outliers, 11, 1), Some(at(16)));
    }

    #[test]
    fn too_large_a_share_of_failures_ejects_and_busy_instances_are_none() {
        assert!(ejections(&"xx.".repeat(20)).iter().any(Option::is_some));
        assert!(
            ejections(&"x.".repeat(40)).iter().all(Option::is_none),
            "half is not more than half"
        );
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
