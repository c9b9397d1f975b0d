//! The sequences of faults that follow from a profile and its seed.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use super::profile::{FaultProfile, Freezing, ServiceTime, Straggling};

/// What happens to one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time to add.
    pub delay: Duration,
    /// Whether it fails after that.
    pub fails: bool,
}

/// What happens to one batch after the other; endless.
///
/// Each kind of fault draws from a stream of its own: switching one on does not move the others.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    service_time: Option<ServiceTime>,
    straggle: Option<Straggling>,
    error_probability: f64,
    service_times: ChaCha8Rng,
    straggles: ChaCha8Rng,
    errors: ChaCha8Rng,
}

impl FaultPlan {
    /// The plan of `profile`.
    pub fn new(profile: &FaultProfile) -> Self {
        Self {
            service_time: profile.service_time,
            straggle: profile.straggle,
            error_probability: profile.error_probability,
            service_times: stream(profile.seed, 0),
            straggles: stream(profile.seed, 1),
            errors: stream(profile.seed, 2),
        }
    }
}

impl Iterator for FaultPlan {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        let mut ms = match self.service_time {
            None => 0.0,
            Some(ServiceTime::Constant { ms }) => ms,
            Some(ServiceTime::Uniform { min_ms, max_ms }) => self.service_times.random_range(min_ms..=max_ms),
            Some(ServiceTime::Lognormal { median_ms, sigma }) => {
                let normal: f64 = StandardNormal.sample(&mut self.service_times);
                median_ms * (sigma * normal).exp()
            }
        };
        if let Some(straggle) = self.straggle {
            // Both numbers are drawn for each batch, so that the probability does not move the times.
            let happens = self.straggles.random_bool(straggle.probability);
            let time = self.straggles.random_range(straggle.min_ms..=straggle.max_ms);
            ms += if happens { time } else { 0.0 };
        }
        Some(Fault { delay: milliseconds(ms), fails: self.errors.random_bool(self.error_probability) })
    }
}

/// A time in which the instance stands still, counted from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze {
    /// Its start.
    pub start: Duration,
    /// Its end.
    pub end: Duration,
}

/// One freeze after the other, endless and never overlapping; none without a [`Freezing`].
#[derive(Debug, Clone)]
pub struct Freezes {
    freezing: Option<Freezing>,
    random: ChaCha8Rng,
    current: Option<Freeze>,
}

impl Freezes {
    /// The freezes of `profile`.
    pub fn new(profile: &FaultProfile) -> Self {
        Self { freezing: profile.freeze, random: stream(profile.seed, 3), current: None }
    }

    /// For how long the instance still stands still at `elapsed` since its start; `elapsed` must not go back.
    pub fn remaining(&mut self, elapsed: Duration) -> Duration {
        while self.current.is_none_or(|freeze| freeze.end <= elapsed) {
            if self.next().is_none() {
                return Duration::ZERO;
            }
        }
        match self.current {
            Some(freeze) if freeze.start <= elapsed => freeze.end - elapsed,
            _ => Duration::ZERO,
        }
    }
}

impl Iterator for Freezes {
    type Item = Freeze;

    fn next(&mut self) -> Option<Freeze> {
        let freezing = self.freezing?;
        let interval: f64 = Exp1.sample(&mut self.random);
        let length = self.random.random_range(freezing.min_ms..=freezing.max_ms);
        let start = self.current.map_or(Duration::ZERO, |last| last.end)
            + milliseconds(interval * freezing.mean_interval_ms);
        // Not empty, so that looking for the one that covers a time gets on.
        let end = start + milliseconds(length).max(Duration::from_micros(1));
        self.current = Some(Freeze { start, end });
        self.current
    }
}

fn stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// The tail of a lognormal distribution is cut at an hour.
fn milliseconds(ms: f64) -> Duration {
    Duration::from_secs_f64(ms.clamp(0.0, 3_600_000.0) / 1000.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn profiles() -> impl Strategy<Value = FaultProfile> {
        let range = (0.0_f64..50.0, 0.0_f64..50.0).prop_map(|(min, more)| (min, min + more));
        let service_time = prop_oneof![
            (0.0_f64..50.0).prop_map(|ms| ServiceTime::Constant { ms }),
            range.clone().prop_map(|(min_ms, max_ms)| ServiceTime::Uniform { min_ms, max_ms }),
            (0.0_f64..50.0, 0.0_f64..1.0)
                .prop_map(|(median_ms, sigma)| ServiceTime::Lognormal { median_ms, sigma }),
        ];
        let straggle = (0.0_f64..=1.0, range.clone())
            .prop_map(|(probability, (min_ms, max_ms))| Straggling { probability, min_ms, max_ms });
        let freeze = (1.0_f64..100.0, range).prop_map(|(mean_interval_ms, (min_ms, max_ms))| Freezing {
            mean_interval_ms,
            min_ms,
            max_ms,
        });
        (
            any::<u64>(),
            prop::option::of(service_time),
            prop::option::of(straggle),
            prop::option::of(freeze),
            0.0..=1.0,
        )
            .prop_map(|(seed, service_time, straggle, freeze, error_probability)| FaultProfile {
                seed,
                service_time,
                straggle,
                freeze,
                error_probability,
            })
    }

    proptest! {
        #[test]
        fn the_seed_determines_everything(profile in profiles()) {
            let faults = || FaultPlan::new(&profile).take(50).collect::<Vec<_>>();
            let freezes = || Freezes::new(&profile).take(50).collect::<Vec<_>>();
            prop_assert_eq!(faults(), faults());
            prop_assert_eq!(freezes(), freezes());
        }

        #[test]
        fn errors_do_not_move_the_times(profile in profiles()) {
            let delays = |error_probability| {
                let profile = FaultProfile { error_probability, ..profile.clone() };
                FaultPlan::new(&profile).take(50).map(|fault| fault.delay).collect::<Vec<_>>()
            };
            prop_assert_eq!(delays(0.0), delays(1.0));
        }

        #[test]
        fn what_remains_agrees_with_the_freezes(profile in profiles(), steps in prop::collection::vec(0_u64..100, 1..50)) {
            let mut asked = Freezes::new(&profile);
            let mut elapsed = Duration::ZERO;
            for step in steps {
                elapsed += Duration::from_millis(step);
                let covering = Freezes::new(&profile)
                    .take_while(|freeze| freeze.start <= elapsed)
                    .find(|freeze| freeze.end > elapsed);
                let expected = covering.map_or(Duration::ZERO, |freeze| freeze.end - elapsed);
                prop_assert_eq!(asked.remaining(elapsed), expected);
            }
        }
    }

    #[test]
    fn frequencies_are_those_of_the_profile() {
        let profile = FaultProfile {
            seed: 1,
            straggle: Some(Straggling { probability: 0.1, min_ms: 50.0, max_ms: 60.0 }),
            error_probability: 0.2,
            ..FaultProfile::default()
        };
        let faults: Vec<_> = FaultPlan::new(&profile).take(10_000).collect();
        let straggles = faults.iter().filter(|fault| fault.delay >= Duration::from_millis(50)).count();
        let errors = faults.iter().filter(|fault| fault.fails).count();
        assert!((900..1100).contains(&straggles), "{straggles}");
        assert!((1850..2150).contains(&errors), "{errors}");
    }
}
