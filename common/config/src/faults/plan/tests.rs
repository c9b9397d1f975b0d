use proptest::prelude::*;

use super::*;
use crate::faults::profile::Freezing;

fn faults(profile: &FaultProfile, instance: u64, count: usize) -> Vec<Fault> {
    let mut plan = FaultPlan::new(profile, instance, "model");
    (0..count).map(|index| plan.next(Duration::from_millis(10 * index as u64))).collect()
}

fn profiles() -> impl Strategy<Value = FaultProfile> {
    let range = (0.0_f64..50.0, 0.0_f64..50.0).prop_map(|(min, more)| (min, min + more));
    let service_time = prop_oneof![
        (0.0_f64..50.0).prop_map(|ms| ServiceTime::Constant { ms }),
        range.clone().prop_map(|(min_ms, max_ms)| ServiceTime::Uniform { min_ms, max_ms }),
        (0.0_f64..50.0, 0.0_f64..1.0)
            .prop_map(|(median_ms, sigma)| ServiceTime::Lognormal { median_ms, sigma }),
        prop::collection::vec(0.0_f64..50.0, 1..9)
            .prop_map(|values_ms| ServiceTime::Empirical { values_ms }),
    ];
    let straggle = (0.0_f64..=1.0, range.clone())
        .prop_map(|(probability, (min_ms, max_ms))| Straggling { probability, min_ms, max_ms });
    let freeze = (1.0_f64..100.0, range).prop_map(|(mean_interval_ms, (min_ms, max_ms))| {
        Freezing { mean_interval_ms, min_ms, max_ms }
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
            ..FaultProfile::default()
        })
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
        straggle: Some(Straggling { probability: 0.1, min_ms: 50.0, max_ms: 60.0 }),
        error_probability: 0.2,
        ..FaultProfile::default()
    };
    let faults = faults(&profile, 0, 10_000);
    let straggles = faults.iter().filter(|fault| fault.delay >= Duration::from_millis(50)).count();
    let errors = faults.iter().filter(|fault| fault.fails).count();
    assert!((900..1100).contains(&straggles), "{straggles}");
    assert!((1850..2150).contains(&errors), "{errors}");
}

#[test]
fn instances_are_independent_of_each_other() {
    let straggle = Some(Straggling { probability: 0.5, min_ms: 1.0, max_ms: 2.0 });
    let profile = FaultProfile { seed: 1, straggle, ..FaultProfile::default() };
    assert_ne!(faults(&profile, 0, 50), faults(&profile, 1, 50));
}

fn span(min_ms: f64, max_ms: f64) -> Span {
    Span { min_ms, max_ms }
}

fn slow(share: f64, correlated: bool) -> FaultProfile {
    let slowdown = Slowdown {
        share,
        correlated,
        mean_interval_ms: 1_000.0,
        length: span(500.0, 1_500.0),
        added: span(5.0, 5.0),
    };
    FaultProfile { seed: 4, slowdown: Some(slowdown), ..FaultProfile::default() }
}

/// For each instance, whether it is slow at each of `count` moments 10 ms apart.
fn slow_moments(profile: &FaultProfile, instances: u64, count: usize) -> Vec<Vec<bool>> {
    let is_slow = |fault: Fault| fault.delay > Duration::ZERO;
    (0..instances)
        .map(|instance| faults(profile, instance, count).into_iter().map(is_slow).collect())
        .collect()
}

#[test]
fn correlated_slowdowns_come_together_and_hit_their_share() {
    let moments = slow_moments(&slow(0.4, true), 200, 20_000);
    let slow_at = |at: usize| moments.iter().filter(|instance| instance[at]).count();
    let hit: Vec<usize> = (0..20_000).map(slow_at).filter(|&count| count > 0).collect();
    let mean = hit.iter().sum::<usize>() as f64 / hit.len() as f64;
    assert!((70.0..90.0).contains(&mean), "{mean} of 200 instances slow together");
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
    assert!((35..65).contains(&prone.len()), "{} of 200 instances are prone", prone.len());
    assert!(prone.iter().all(|share| (0.3..0.7).contains(share)), "{prone:?}");
}

#[test]
fn a_transfer_has_two_partners() {
    let transfers = Transfers {
        instances: 6,
        concurrent: 1,
        mean_pause_ms: 100.0,
        length: span(100.0, 300.0),
        added: span(5.0, 5.0),
    };
    let profile = FaultProfile { seed: 9, transfers: Some(transfers), ..FaultProfile::default() };
    let moments = slow_moments(&profile, 6, 5_000);
    let partners = |at: usize| moments.iter().filter(|instance| instance[at]).count();
    let counts: Vec<usize> = (0..5_000).map(partners).collect();
    assert!(counts.iter().all(|count| [0, 2].contains(count)));
    let busy = counts.iter().filter(|count| **count == 2).count() as f64 / 5_000.0;
    assert!((0.55..0.78).contains(&busy), "{busy}");
    assert!(moments.iter().all(|instance| instance.contains(&true)), "every instance has its turn");
}
