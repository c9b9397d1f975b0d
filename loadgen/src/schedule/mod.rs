//! Planned send times, made before the run from a seed.
//!
//! Planned in advance, so that neither the server nor the generator's own delays can shift the
//! load, and so that several systems can be measured on the very same arrivals. [`endless`] makes
//! the same times one by one.

mod arrivals;
mod trace;

pub use arrivals::{Arrivals, Bursts};
pub use trace::Trace;

use std::time::Duration;

use anyhow::{anyhow, ensure};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

/// Most requests in one run: their records are held in memory.
pub const MAX_REQUESTS: usize = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    Duration(Duration),
    Requests(usize),
}

impl Length {
    /// Returns the end in seconds and the most requests; one more than allowed shows too many.
    fn bounds(self) -> (f64, usize) {
        match self {
            Self::Duration(duration) => (duration.as_secs_f64(), MAX_REQUESTS + 1),
            Self::Requests(requests) => (f64::INFINITY, requests),
        }
    }
}

/// Endless ascending send times in microseconds: those of [`Schedule::plan`] for the same
/// arguments, without a bound.
pub fn endless(
    arrivals: Arrivals,
    rate: f64,
    seed: u64,
) -> anyhow::Result<impl Iterator<Item = u64>> {
    Ok(times_s(arrivals, rate, seed)?.map(microseconds))
}

fn times_s(arrivals: Arrivals, rate: f64, seed: u64) -> anyhow::Result<impl Iterator<Item = f64>> {
    ensure!(
        rate.is_finite() && rate > 0.0,
        "rate {rate} is not a positive number of requests/s; give --rate as, say, 270"
    );
    if let Arrivals::Bursts(bursts) = arrivals {
        ensure!(
            bursts.show_at(rate),
            "at {rate} requests/s, {bursts} has next to no requests in a burst; raise --rate, or \
             use --arrivals poisson"
        );
    }
    Ok(arrivals.times_s(rate, ChaCha12Rng::seed_from_u64(seed)))
}

fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Planned times in microseconds from the start of the run, ascending; at least one.
    pub planned_us: Vec<u64>,
}

impl Schedule {
    /// Plans arrivals at a mean of `rate` requests/s; the same arguments give the same schedule.
    pub fn plan(arrivals: Arrivals, rate: f64, length: Length, seed: u64) -> anyhow::Result<Self> {
        let times = times_s(arrivals, rate, seed)?;
        let (end_s, most) = length.bounds();
        let too_long = || {
            anyhow!(
                "{rate} requests/s for that long is more than {MAX_REQUESTS} requests; lower \
                 --rate, --duration or --requests"
            )
        };
        ensure!(most <= MAX_REQUESTS || end_s * rate <= MAX_REQUESTS as f64, too_long());
        let schedule = Self::of_times(times, end_s, most)?;
        let last = schedule.planned_us.last();
        let too_late = last.is_some_and(|&last| last > u64::MAX / 4);
        ensure!(schedule.planned_us.len() <= MAX_REQUESTS && !too_late, too_long());
        Ok(schedule)
    }

    pub fn of_trace(trace: &Trace, length: Option<Length>) -> anyhow::Result<Self> {
        // A trace has no more times than a run may.
        let (end_s, most) = length.map_or((f64::INFINITY, MAX_REQUESTS), Length::bounds);
        Self::of_times(trace.times_s.iter().copied(), end_s, most)
    }

    fn of_times(times: impl Iterator<Item = f64>, end_s: f64, most: usize) -> anyhow::Result<Self> {
        let times = times.take_while(|&at| at < end_s).take(most);
        let planned_us: Vec<u64> = times.map(microseconds).collect();
        ensure!(
            !planned_us.is_empty(),
            "the run is empty; give a positive --duration (seconds) or --requests (a count)"
        );
        Ok(Self { planned_us })
    }

    /// Requests/s from the start of the run to the last one.
    pub fn mean_rate(&self) -> f64 {
        let last_us = self.planned_us.last().copied().unwrap_or_default();
        self.planned_us.len() as f64 / (last_us.max(1) as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_seed_fixes_the_schedule_and_the_rate_holds(seed: u64, rate in 50.0..2000.0_f64) {
            for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
                let length = Length::Requests(10_000);
                let schedule = Schedule::plan(arrivals, rate, length, seed).unwrap();
                prop_assert_eq!(
                    &schedule,
                    &Schedule::plan(arrivals, rate, length, seed).unwrap()
                );
                prop_assert!(schedule.planned_us.is_sorted());
                let endless = endless(arrivals, rate, seed).unwrap().take(10_000);
                prop_assert!(endless.eq(schedule.planned_us.iter().copied()));
                // The mean of 10,000 exponential gaps lies within 5 % of theirs but once in 1.7
                // million (5 sigma).
                let measured = 1e6 * 9_999.0
                    / (schedule.planned_us[9_999] - schedule.planned_us[0]) as f64;
                prop_assert!(
                    (measured / rate - 1.0).abs() < 0.05,
                    "{} against {}",
                    measured,
                    rate
                );
            }
        }

        #[test]
        fn a_duration_bounds_the_times(seed: u64) {
            let length = Length::Duration(Duration::from_secs(2));
            let schedule = Schedule::plan(Arrivals::Poisson, 500.0, length, seed).unwrap();
            prop_assert!(schedule.planned_us.iter().all(|&at| at <= 2_000_000));
            prop_assert!((700..1300).contains(&schedule.planned_us.len()));
        }
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced() {
        let length = Length::Duration(Duration::from_secs(1));
        let schedule = Schedule::plan(Arrivals::Constant, 4.0, length, 7).unwrap();
        assert_eq!(schedule.planned_us, [0, 250_000, 500_000, 750_000]);
    }

    #[test]
    fn seeds_differ() {
        let plan =
            |seed| Schedule::plan(Arrivals::Poisson, 10.0, Length::Requests(10), seed).unwrap();
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn senseless_schedules_are_refused() {
        use Arrivals::Poisson;
        use Length::Requests;
        let bursts = Arrivals::Bursts(Bursts::default());
        for (arrivals, rate, length, says) in [
            (Poisson, 0.0, Requests(1), "is not a positive number"),
            (Poisson, -1.0, Requests(1), "is not a positive number"),
            (Poisson, f64::NAN, Requests(1), "is not a positive number"),
            (Poisson, f64::INFINITY, Requests(1), "is not a positive number"),
            (Poisson, 1.0, Requests(0), "the run is empty"),
            (Poisson, 1.0, Length::Duration(Duration::ZERO), "the run is empty"),
            (Poisson, 1e6, Length::Duration(HOUR), "is more than"),
            (Poisson, 1.0, Requests(MAX_REQUESTS + 1), "is more than"),
            (Poisson, 1e-300, Requests(9), "is more than"),
            (bursts, 1e-9, Requests(9), "next to no requests in a burst"),
        ] {
            let refused = Schedule::plan(arrivals, rate, length, 1).unwrap_err().to_string();
            assert!(refused.contains(says), "{rate}: {refused}");
        }
    }
}
