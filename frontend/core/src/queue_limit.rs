//! Bound on the queue of queries that keeps the wait short under overload, adapted while serving.
//!
//! A fixed bound is either too small for a burst or, under lasting overload, a queue in which
//! every query waits as long as the bound allows, until answers come too late to be of use. A
//! standing queue alone is no overload: clients that each wait for an answer before they ask again
//! (a closed loop) keep one as long as they are many, and refusing them gains nothing. Overload is
//! a queue that grows: it reaches the fixed bound, or every query that is started has waited for
//! longer than its deadline leaves it.
//!
//! Then the bound becomes what drains within the target at the rate at which queries were started
//! meanwhile (Little's law, as BBR sizes a window by bandwidth times delay), and the newest queries
//! beyond it are shed. From then on the mean wait is held to the target: above it the bound is set
//! in the same way, well below it it grows by a tenth and one, up to the fixed bound, at which the
//! search for overload begins anew; in between it stays, since a bound that swings lets in the
//! queries that wait longest. A closed loop that is refused asks again at once and looks like
//! overload, so the fixed bound is tried again at times, for a two-hundredth of the time at most.
//! The intervals are those of CoDel (Nichols and Jacobson, "Controlling queue delay", ACM Queue
//! 2012; RFC 8289). The target is a share of the service time, which is learned: a wait of 10 ms is
//! long for a model that takes 2 ms, and nothing for one that takes a second. It is not learned
//! under overload: where an instance is sent several requests at a time, most of what it takes then
//! is the wait for its other requests.
//!
//! Limits on concurrency like Netflix's gradient2 or TCP Vegas estimate the queue from latency
//! against its best value, which they must keep learning anew; here the frontend itself holds the
//! queue, and knows.

use std::time::Duration;

use crate::Time;

/// Settings of the adaptive bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueLimitConfig {
    /// The wait aimed at under overload, as a share of the time that an instance takes.
    pub wait_share: f64,
    /// The bound is never less, so that instances don't run dry between two queries.
    pub min: usize,
    /// The least time over which waits are judged; three times the service time if that is more.
    pub interval: Duration,
}

impl Default for QueueLimitConfig {
    fn default() -> Self {
        Self { wait_share: 0.5, min: 2, interval: Duration::from_millis(30) }
    }
}

/// The bound on waiting queries of one pool.
#[derive(Debug)]
pub(crate) struct QueueLimit {
    config: QueueLimitConfig,
    max: usize,
    limit: f64,
    /// Seconds that instances take, averaged over the last hundred requests or so.
    service: Option<f64>,
    /// Requests that it was learned from, up to enough.
    learned: u32,
    began: Time,
    /// True unless a query started since `began` had more time left than it had waited.
    all_late: bool,
    /// Of the queries started since `began`.
    waited: Duration,
    started: u32,
    refused: Option<Time>,
    /// End of the last interval in which waits were short.
    calm: Time,
    /// While the bound is less than the fixed one, when that is tried again.
    try_again: Option<Time>,
    /// The bound was cut just now, and the queue was not.
    is_cut: bool,
}

/// Requests over which the service time is averaged and from which it is known well enough to keep.
const ENOUGH: u32 = 128;
/// A straggler counts as no more than this many times the average.
const CLIP: f64 = 4.0;
/// A mean wait below this share of the target is short enough for the bound to grow.
const SHORT: f64 = 0.85;
/// For this long after a refusal there is overload.
const OVERLOAD: Duration = Duration::from_secs(1);
/// More intervals without overload raise any bound to the fixed one.
const FORGOTTEN: u128 = 100;
/// Service times over which waits are judged.
const SERVICES: f64 = 3.0;
/// The fixed bound is retried after this many times what it took to fill, at least after this long.
const FILLS: u32 = 200;
const TRY_AGAIN: Duration = Duration::from_secs(10);

impl QueueLimit {
    /// Begins at the fixed bound `max`.
    pub(crate) fn new(config: QueueLimitConfig, max: usize) -> Self {
        let max = max.max(config.min);
        Self {
            config,
            max,
            limit: max as f64,
            service: None,
            learned: 0,
            began: Time::ZERO,
            all_late: true,
            waited: Duration::ZERO,
            started: 0,
            refused: None,
            calm: Time::ZERO,
            try_again: None,
            is_cut: false,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Returns true if another query may wait beside `queued` ones.
    pub(crate) fn admits(&self, queued: usize) -> bool {
        queued < self.limit()
    }

    /// Returns how many of `queued` queries are to be shed: once after the bound was cut.
    pub(crate) fn take_excess(&mut self, queued: usize) -> usize {
        if std::mem::take(&mut self.is_cut) { queued.saturating_sub(self.limit()) } else { 0 }
    }

    pub(crate) fn refused(&mut self, now: Time) {
        self.refused = Some(now);
    }

    /// Returns true if queries have been refused a moment ago: no time for redundant work.
    pub(crate) fn is_overloaded(&self, now: Time) -> bool {
        self.refused.is_some_and(|refused| now.since(refused) < OVERLOAD)
    }

    /// An instance took `service` to answer.
    pub(crate) fn finished(&mut self, now: Time, service: Duration) {
        if self.learned >= ENOUGH && self.is_overloaded(now) {
            return;
        }
        self.learned = (self.learned + 1).min(ENOUGH);
        let service = service.as_secs_f64();
        self.service = Some(match self.service {
            None => service,
            Some(average) => {
                average + (service.min(CLIP * average) - average) / f64::from(self.learned)
            }
        });
    }

    /// A query got its slot after it had waited for `waited`, `left` before its deadline.
    pub(crate) fn started(&mut self, now: Time, waited: Duration, left: Duration) {
        let Some(service) = self.service else { return };
        let services = Duration::try_from_secs_f64(SERVICES * service).unwrap_or_default();
        let interval = self.config.interval.max(services);
        if now.since(self.began) >= interval {
            self.judge(now, service, interval);
        }
        self.started += 1;
        self.waited = self.waited.saturating_add(waited);
        self.all_late &= waited > left;
    }

    fn judge(&mut self, now: Time, service: f64, interval: Duration) {
        let elapsed = now.since(self.began);
        let target = self.config.wait_share * service;
        let is_limiting = self.limit < self.max as f64;
        let mean = self.waited.as_secs_f64() / f64::from(self.started.max(1));
        let was_full = self.refused.is_some_and(|refused| refused >= self.began);
        let has_grown = was_full || self.all_late && self.started > 0;
        if is_limiting && self.try_again.is_some_and(|at| at <= now) {
            self.limit = self.max as f64;
            (self.try_again, self.calm) = (None, now);
        } else if mean > target && (is_limiting || has_grown) {
            let drained = f64::from(self.started) / elapsed.as_secs_f64() * target;
            self.limit = drained.min(self.limit);
            if !is_limiting {
                let filled = now.since(self.calm).saturating_mul(FILLS);
                self.try_again = Some(now + filled.clamp(TRY_AGAIN, 60 * TRY_AGAIN));
                self.is_cut = true;
            }
        } else if !is_limiting || mean < SHORT * target {
            let intervals = elapsed.as_nanos() / interval.as_nanos().max(1);
            for _ in 0..intervals.min(FORGOTTEN) {
                self.limit = self.limit * 1.1 + 1.0;
            }
        }
        if mean <= target {
            self.calm = now;
        }
        self.limit = self.limit.clamp(self.config.min as f64, self.max as f64);
        (self.began, self.all_late, self.waited, self.started) = (now, true, Duration::ZERO, 0);
    }
}

#[cfg(test)]
mod tests;
