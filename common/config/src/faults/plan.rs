//! The sequences of faults that follow from a profile, its seed and the instance's number.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};

use crate::faults::profile::{FaultProfile, ServiceTime, Slowdown, Span, Straggling, Transfers};
use crate::faults::windows::{Kind, Window, Windows, milliseconds, mix, of_instance, stream};

/// Faults of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Time to add.
    pub delay: Duration,
    /// True if the batch fails after its delay.
    pub fails: bool,
}

/// Sequence of faults for the batches of one model at one instance.
///
/// Each kind of fault draws from its own random stream: switching one on does not move the others.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    service_time: Option<ServiceTime>,
    straggle: Option<Straggling>,
    slow: Option<Slow>,
    transfers: Vec<Transfer>,
    error_probability: f64,
    service_times: ChaCha8Rng,
    straggles: ChaCha8Rng,
    added: ChaCha8Rng,
    errors: ChaCha8Rng,
}

impl FaultPlan {
    /// The plan of `profile` for `model` at the instance of this number.
    pub fn new(profile: &FaultProfile, instance: u64, model: &str) -> Self {
        let own = of_instance(profile.seed, instance);
        // Models of one instance draw apart from each other.
        let seed = model
            .bytes()
            .fold(own, |seed, byte| mix(seed ^ u64::from(byte)));
        let transfers = profile
            .transfers
            .map_or(0, |transfers| transfers.concurrent);
        Self {
            service_time: profile
                .model_service_time
                .get(model)
                .or(profile.service_time.as_ref())
                .cloned(),
            straggle: profile.straggle,
            slow: profile
                .slowdown
                .map(|slowdown| Slow::new(slowdown, profile.seed, instance)),
            transfers: (0..u64::from(transfers))
                .zip(profile.transfers.into_iter().cycle())
                .map(|(number, transfers)| Transfer::new(transfers, profile.seed, number, instance))
                .collect(),
            error_probability: profile.error_probability,
            service_times: stream(seed, Kind::ServiceTime),
            straggles: stream(seed, Kind::Straggling),
            added: stream(seed, Kind::Slowdown),
            errors: stream(seed, Kind::Errors),
        }
    }

    /// Returns the faults of the batch that begins at `elapsed` since the start of the experiment.
    /// `elapsed` must not go back.
    pub fn next(&mut self, elapsed: Duration) -> Fault {
        let mut ms = match &self.service_time {
            None => 0.0,
            Some(ServiceTime::Constant { ms }) => *ms,
            Some(ServiceTime::Uniform { min_ms, max_ms }) => {
                self.service_times.random_range(*min_ms..=*max_ms)
            }
            Some(ServiceTime::Lognormal { median_ms, sigma }) => {
                let normal: f64 = StandardNormal.sample(&mut self.service_times);
                median_ms * (sigma * normal).exp()
            }
            Some(ServiceTime::Empirical { values_ms }) => {
                let index = self.service_times.random_range(0..values_ms.len().max(1));
                values_ms.get(index).copied().unwrap_or_default()
            }
        };
        if let Some(straggle) = self.straggle {
            // Both numbers are drawn for each batch, so that the probability does not move the
            // times.
            let happens = self.straggles.random_bool(straggle.probability);
            let time = self
                .straggles
                .random_range(straggle.min_ms..=straggle.max_ms);
            ms += if happens { time } else { 0.0 };
        }
        if let Some(added) = self.slow.as_mut().and_then(|slow| slow.at(elapsed)) {
            ms += self.added.random_range(added.min_ms..=added.max_ms);
        }
        for transfer in &mut self.transfers {
            if let Some(added) = transfer.at(elapsed) {
                ms += self.added.random_range(added.min_ms..=added.max_ms);
            }
        }
        Fault {
            delay: milliseconds(ms),
            fails: self.errors.random_bool(self.error_probability),
        }
    }
}

/// Slow periods as one instance sees them.
#[derive(Debug, Clone)]
struct Slow {
    slowdown: Slowdown,
    windows: Windows,
    seed: u64,
    instance: u64,
}

impl Slow {
    fn new(slowdown: Slowdown, seed: u64, instance: u64) -> Self {
        let of_windows = if slowdown.correlated {
            seed
        } else {
            of_instance(seed, instance)
        };
        let windows = Windows::new(
            slowdown.mean_interval_ms,
            slowdown.length,
            stream(of_windows, Kind::Slowdown),
        );
        Self {
            slowdown,
            windows,
            seed,
            instance,
        }
    }

    fn at(&mut self, elapsed: Duration) -> Option<Span> {
        let window = self.windows.covering(elapsed)?;
        let draw = if self.slowdown.correlated {
            window.index
        } else {
            0
        };
        let mut random = stream(
            of_instance(mix(self.seed ^ draw), self.instance),
            Kind::SlowdownShare,
        );
        random
            .random_bool(self.slowdown.share)
            .then_some(self.slowdown.added)
    }
}

/// One of the concurrent transfers as one instance sees it.
#[derive(Debug, Clone)]
struct Transfer {
    transfers: Transfers,
    windows: Windows,
    seed: u64,
    instance: u64,
}

impl Transfer {
    fn new(transfers: Transfers, seed: u64, number: u64, instance: u64) -> Self {
        let seed = mix(seed ^ mix(number));
        let windows = Windows::new(
            transfers.mean_pause_ms,
            transfers.length,
            stream(seed, Kind::Transfers),
        );
        Self {
            transfers,
            windows,
            seed,
            instance,
        }
    }

    fn at(&mut self, elapsed: Duration) -> Option<Span> {
        let window = self.windows.covering(elapsed)?;
        let mut random = ChaCha8Rng::seed_from_u64(mix(self.seed ^ mix(window.index)));
        let all = u64::from(self.transfers.instances.max(2));
        let one = random.random_range(0..all);
        let other = (one + random.random_range(1..all)) % all;
        [one, other]
            .contains(&self.instance)
            .then_some(self.transfers.added)
    }
}

/// One freeze of an instance after the other, endless and never overlapping; none without a
/// [`Freezing`](crate::faults::Freezing).
#[derive(Debug, Clone)]
pub struct Freezes(Option<Windows>);

impl Freezes {
    /// The freezes of `profile` at the instance of this number.
    pub fn new(profile: &FaultProfile, instance: u64) -> Self {
        let random = stream(of_instance(profile.seed, instance), Kind::Freezes);
        Self(profile.freeze.map(|freeze| {
            let length = Span {
                min_ms: freeze.min_ms,
                max_ms: freeze.max_ms,
            };
            Windows::new(freeze.mean_interval_ms, length, random)
        }))
    }

    /// For how long the instance still stands still at `elapsed` since its start; `elapsed` must
    /// not go back.
    pub fn remaining(&mut self, elapsed: Duration) -> Duration {
        let window = self
            .0
            .as_mut()
            .and_then(|windows| windows.covering(elapsed));
        window.map_or(Duration::ZERO, |window| window.end - elapsed)
    }
}

impl Iterator for Freezes {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        self.0.as_mut().map(Windows::advance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::faults::profile::Freezing;

    fn faults(profile: &FaultProfile, instance: u64, count: usize) -> Vec<Fault> {
        let mut plan = FaultPlan::new(profile, instance, "model");
        (0..count)
            .map(|index| plan.next(Duration::from_millis(10 * index as u64)))
            .collect()
    }

    fn profiles() -> impl Strategy<Value = FaultProfile> {
        let range = (0.0_f64..50.0, 0.0_f64..50.0).prop_map(|(min, more)| (min, min + more));
        let service_time = prop_oneof![
            (0.0_f64..50.0).prop_map(|ms| ServiceTime::Constant { ms }),
            range
                .clone()
                .prop_map(|(min_ms, max_ms)| ServiceTime::Uniform { min_ms, max_ms }),
            (0.0_f64..50.0, 0.0_f64..1.0)
                .prop_map(|(median_ms, sigma)| ServiceTime::Lognormal { median_ms, sigma }),
            prop::collection::vec(0.0_f64..50.0, 1..9)
                .prop_map(|values_ms| ServiceTime::Empirical { values_ms }),
        ];
        let straggle =
            (0.0_f64..=1.0, range.clone()).prop_map(|(probability, (min_ms, max_ms))| Straggling {
                probability,
                min_ms,
                max_ms,
            });
        let freeze =
            (1.0_f64..100.0, range).prop_map(|(mean_interval_ms, (min_ms, max_ms))| Freezing {
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
            .prop_map(
                |(seed, service_time, straggle, freeze, error_probability)| FaultProfile {
                    seed,
                    service_time,
                    straggle,
                    freeze,
                    error_probability,
                    ..FaultProfile::default()
                },
            )
    }

    proptest! {
        #[test]
        fn the_seed_determines_everything(profile in profiles()) {
            let freezes = || Freezes::new(&profile, 3).take(50).collect::<Vec<_>>();
            prop_assert_eq!(faults(&profile, 3, 50), faults(&profile, 3, 50));
            prop_assert_eq!(freezes(), freezes());
        }

        #[test]
        fn errors_do_not_move_the_times(profile in profiles()) {
            let delays = |error_probability| {
                let profile = FaultProfile {
                    error_probability,
                    ..profile.clone()
                };
                faults(&profile, 0, 50)
                    .into_iter()
                    .map(|fault| fault.delay)
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(delays(0.0), delays(1.0));
        }

        #[test]
        fn what_remains_agrees_with_the_freezes(
            profile in profiles(),
            steps in prop::collection::vec(0_u64..100, 1..50),
        ) {
            let mut asked = Freezes::new(&profile, 1);
            let mut elapsed = Duration::ZERO;
            for step in steps {
                elapsed += Duration::from_millis(step);
                let covering = Freezes::new(&profile, 1)
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
            straggle: Some(Straggling {
                probability: 0.1,
                min_ms: 50.0,
                max_ms: 60.0,
            }),
            error_probability: 0.2,
            ..FaultProfile::default()
        };
        let faults = faults(&profile, 0, 10_000);
        let straggles = faults
            .iter()
            .filter(|fault| fault.delay >= Duration::from_millis(50))
            .count();
        let errors = faults.iter().filter(|fault| fault.fails).count();
        assert!((900..1100).contains(&straggles), "{straggles}");
        assert!((1850..2150).contains(&errors), "{errors}");
    }

    #[test]
    fn instances_are_independent_of_each_other() {
        let straggle = Some(Straggling {
            probability: 0.5,
            min_ms: 1.0,
            max_ms: 2.0,
        });
        let profile = FaultProfile {
            seed: 1,
            straggle,
            ..FaultProfile::default()
        };
        assert_ne!(faults(&profile, 0, 50), faults(&profile, 1, 50));
    }

    fn slow(share: f64, correlated: bool) -> FaultProfile {
        let slowdown = Slowdown {
            share,
            correlated,
            mean_interval_ms: 1_000.0,
            length: Span {
                min_ms: 500.0,
                max_ms: 1_500.0,
            },
            added: Span {
                min_ms: 5.0,
                max_ms: 5.0,
            },
        };
        FaultProfile {
            seed: 4,
            slowdown: Some(slowdown),
            ..FaultProfile::default()
        }
    }

    /// For each instance, whether it is slow at each of `count` moments 10 ms apart.
    fn slow_moments(profile: &FaultProfile, instances: u64, count: usize) -> Vec<Vec<bool>> {
        let is_slow = |fault: Fault| fault.delay > Duration::ZERO;
        (0..instances)
            .map(|instance| {
                faults(profile, instance, count)
                    .into_iter()
                    .map(is_slow)
                    .collect()
            })
            .collect()
    }

    #[test]
    fn correlated_slowdowns_come_together_and_hit_their_share() {
        let moments = slow_moments(&slow(0.4, true), 200, 20_000);
        let slow_at = |at: usize| moments.iter().filter(|instance| instance[at]).count();
        let hit: Vec<usize> = (0..20_000)
            .map(slow_at)
            .filter(|&count| count > 0)
            .collect();
        let mean = hit.iter().sum::<usize>() as f64 / hit.len() as f64;
        assert!(
            (70.0..90.0).contains(&mean),
            "{mean} of 200 instances slow together"
        );
        let share = hit.len() as f64 / 20_000.0;
        assert!((0.4..0.6).contains(&share), "slow {share} of the time");
    }

    #[test]
    fn slowdowns_of_their_own_always_hit_the_same_instances() {
        let moments = slow_moments(&slow(0.25, false), 200, 20_000);
        let prone: Vec<f64> = moments
            .iter()
            .map(|instance| instance.iter().filter(|slow| **slow).count() as f64 / 20_000.0)
            .filter(|share| *share > 0.0)
            .collect();
        assert!(
            (35..65).contains(&prone.len()),
            "{} of 200 instances are prone",
            prone.len()
        );
        assert!(
            prone.iter().all(|share| (0.3..0.7).contains(share)),
            "{prone:?}"
        );
    }

    #[test]
    fn a_transfer_has_two_partners() {
        let transfers = Transfers {
            instances: 6,
            concurrent: 1,
            mean_pause_ms: 100.0,
            length: Span {
                min_ms: 100.0,
                max_ms: 300.0,
            },
            added: Span {
                min_ms: 5.0,
                max_ms: 5.0,
            },
        };
        let profile = FaultProfile {
            seed: 9,
            transfers: Some(transfers),
            ..FaultProfile::default()
        };
        let moments = slow_moments(&profile, 6, 5_000);
        let partners = |at: usize| moments.iter().filter(|instance| instance[at]).count();
        let counts: Vec<usize> = (0..5_000).map(partners).collect();
        assert!(counts.iter().all(|count| [0, 2].contains(count)));
        let busy = counts.iter().filter(|count| **count == 2).count() as f64 / 5_000.0;
        assert!((0.55..0.78).contains(&busy), "{busy}");
        assert!(
            moments.iter().all(|instance| instance.contains(&true)),
            "every instance has its turn"
        );
    }
}
