//! The simulator against what can be computed by hand.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::time::Duration;

use parapet_config::faults::{FaultProfile, Freezing, ServiceTime, Slowdown, Span, Straggling};
use parapet_loadgen::experiment::{Arm, ResolvedArm, Roles};
use parapet_loadgen::report::Summary;
use parapet_loadgen::schedule::Arrivals;
use parapet_loadgen::simulate::{Crashes, Load, Network, Simulated, Simulation, Simulator};
use parapet_loadgen::target::Provenance;
use proptest::prelude::*;

fn arm(text: &str, roles: Roles) -> ResolvedArm {
    let arm: Arm = text.parse().unwrap();
    arm.resolve(2, 1, roles).unwrap()
}

fn load(rate: f64, queries: u64) -> Load {
    Load {
        arrivals: Arrivals::Poisson,
        rate,
        queries,
        seed: 7,
        allow_approximate: true,
    }
}

fn simulation(strategy: &str, instances: usize, redundant: usize, load: Load) -> Simulation {
    let roles = Roles {
        instances,
        redundant,
    };
    let mut simulation = Simulation::of(&arm(strategy, roles), roles, 1, load).unwrap();
    simulation.network = Network::NONE;
    simulation.with_faults(&constant(18.0))
}

fn constant(ms: f64) -> FaultProfile {
    FaultProfile {
        seed: 3,
        service_time: Some(ServiceTime::Constant { ms }),
        ..FaultProfile::default()
    }
}

fn run(simulation: Simulation) -> Simulated {
    let simulated = Simulator::new(simulation)
        .unwrap()
        .run(|_| ControlFlow::Continue(()));
    assert!(!simulated.partial);
    assert_eq!(
        simulated.counts.planned,
        simulated.counts.answered + simulated.counts.failed
    );
    simulated
}

fn answered(simulated: &Simulated) -> Summary {
    simulated.latency.answered.unwrap()
}

/// One server, Poisson arrivals, any service time: the mean wait of Pollaczek and Khinchine,
/// `rate * E[S^2] / (2 (1 - rate * E[S]))`.
#[test]
fn a_single_instance_waits_as_pollaczek_and_khinchine_say() {
    let (median_ms, sigma): (f64, f64) = (8.0, 0.5);
    let mean = median_ms * (sigma * sigma / 2.0).exp();
    let square = median_ms * median_ms * (2.0 * sigma * sigma).exp();
    for (service_time, mean, square) in [
        (ServiceTime::Constant { ms: 10.0 }, 10.0, 100.0),
        (ServiceTime::Lognormal { median_ms, sigma }, mean, square),
    ] {
        let rate = 60.0;
        let mut queue = simulation("none", 1, 0, load(rate, 60_000));
        queue = queue.with_faults(&FaultProfile {
            service_time: Some(service_time),
            ..constant(0.0)
        });
        queue.frontend.deadline = Duration::from_secs(60);
        let simulated = run(queue);
        let used = rate * mean / 1e3;
        let wait = rate / 1e3 * square / (2.0 * (1.0 - used));
        let measured = answered(&simulated).mean - mean;
        assert!(
            (measured / wait - 1.0).abs() < 0.05,
            "waited {measured} ms, expected {wait} ms"
        );
        let pool = &simulated.pools[0];
        assert!((pool.utilisation / used - 1.0).abs() < 0.02, "{pool:?}");
        // Little's law.
        assert!(
            (pool.mean_queue / (rate / 1e3 * measured) - 1.0).abs() < 0.02,
            "{pool:?}"
        );
    }
}

#[test]
fn an_idle_cluster_takes_service_time_and_network_exactly() {
    let mut quiet = simulation(
        "none",
        4,
        0,
        Load {
            arrivals: Arrivals::Constant,
            ..load(20.0, 500)
        },
    );
    quiet.network = Network::default();
    for delay in [
        &mut quiet.network.client,
        &mut quiet.network.to_instance,
        &mut quiet.network.to_frontend,
    ] {
        (delay.constant_ms, delay.exponential_ms) = (0.25, 0.0);
    }
    quiet.keep_records = true;
    let simulated = run(quiet);
    let records = simulated.recording.unwrap().records;
    assert!(
        records
            .iter()
            .all(|record| record.latency_us() == Some(18_750))
    );
    assert_eq!(records.len(), 500);
}

#[test]
fn stragglers_have_their_share_of_the_tail() {
    let probability = 0.05;
    let straggle = Some(Straggling {
        probability,
        min_ms: 100.0,
        max_ms: 200.0,
    });
    let queries = 20_000;
    let mut sparse = simulation(
        "none",
        8,
        0,
        Load {
            arrivals: Arrivals::Constant,
            ..load(25.0, queries)
        },
    );
    sparse = sparse.with_faults(&FaultProfile {
        straggle,
        ..constant(18.0)
    });
    sparse.keep_records = true;
    let records = run(sparse).recording.unwrap().records;
    let late = records
        .iter()
        .filter(|record| record.latency_us() > Some(50_000))
        .count() as f64;
    // Five standard deviations of the binomial distribution.
    let (mean, spread) = (
        queries as f64 * probability,
        (queries as f64 * probability * 0.95).sqrt(),
    );
    assert!(
        (late - mean).abs() < 5.0 * spread,
        "{late} stragglers, expected {mean}"
    );
}

#[test]
fn the_seed_determines_everything() {
    let faults = FaultProfile {
        straggle: Some(Straggling {
            probability: 0.02,
            min_ms: 15.0,
            max_ms: 45.0,
        }),
        freeze: Some(Freezing {
            mean_interval_ms: 2_000.0,
            min_ms: 10.0,
            max_ms: 50.0,
        }),
        error_probability: 0.01,
        ..constant(18.0)
    };
    let once = |seed| {
        let load = Load {
            seed,
            ..load(270.0, 4_000)
        };
        let mut simulation = simulation("coded", 12, 6, load).with_faults(&faults);
        simulation.network = Network::default();
        simulation.crashes = Some(Crashes {
            mean_interval_ms: 5_000.0,
            away: Span {
                min_ms: 300.0,
                max_ms: 900.0,
            },
        });
        simulation.keep_records = true;
        run(simulation)
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1).latency, once(2).latency);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, every query has one answer, and no redundant request has two fates.
    #[test]
    fn nothing_is_lost(
        strategy in prop::sample::select(&[ "none", "equal_resources", "replicate", "hedge",
            "approximate_backup", "coded", "coded:k=3:r=2", "coded_hedged", ][..]),
        (instances, redundant, slots, batch) in (3_usize..6, 2_usize..4, 1_u32..4, 1_usize..4),
        (rate, seed) in (20.0_f64..1_500.0, any::<u64>()),
        (error_probability, probability, crash_ms) in (0.0..0.3, 0.0..0.5, 100.0..5_000.0),
    ) {
        let faults = FaultProfile {
            error_probability,
            straggle: Some(Straggling {
                probability,
                min_ms: 5.0,
                max_ms: 1_200.0,
            }),
            freeze: Some(Freezing {
                mean_interval_ms: 500.0,
                min_ms: 1.0,
                max_ms: 300.0,
            }),
            ..constant(10.0)
        };
        let load = Load {
            seed,
            ..load(rate, 400)
        };
        let roles = Roles {
            instances,
            redundant,
        };
        let mut chaos = Simulation::of(&arm(strategy, roles), roles, slots, load).unwrap();
        chaos = chaos.with_faults(&faults);
        chaos.instance.max_batch_size = batch;
        chaos.instance.queue_capacity = 2;
        chaos.crashes = Some(Crashes {
            mean_interval_ms: crash_ms,
            away: Span {
                min_ms: 1.0,
                max_ms: 2_000.0,
            },
        });
        let simulated = run(chaos);
        let answers: u64 = simulated
            .provenance
            .values()
            .map(|answered| answered.count)
            .sum();
        prop_assert_eq!(answers, simulated.counts.answered as u64);
        let work = simulated.redundancy;
        prop_assert!(
            work.won + work.wasted + work.failed <= work.issued,
            "{:?}",
            work
        );
        let longest = simulated.latency.all.unwrap().max;
        prop_assert!(longest < 1_005.0, "{} ms is past the deadline", longest);
        prop_assert!(simulated.pools.iter().all(|pool| pool.utilisation <= 1.0));
    }
}

fn with_stragglers(strategy: &str) -> Simulated {
    let straggle = Some(Straggling {
        probability: 0.01,
        min_ms: 15.0,
        max_ms: 45.0,
    });
    let faults = FaultProfile {
        straggle,
        ..constant(18.0)
    };
    run(simulation(strategy, 12, 6, load(270.0, 20_000)).with_faults(&faults))
}

/// ParM, section 5.2: with as many instances, coding cuts the tail that stragglers make.
#[test]
fn coding_beats_equal_resources_when_few_straggle() {
    let (coded, equal) = (with_stragglers("coded"), with_stragglers("equal_resources"));
    let tail = |simulated: &Simulated| answered(simulated).p99_9;
    assert!(
        tail(&coded) < 0.75 * tail(&equal),
        "{} ms against {} ms",
        tail(&coded),
        tail(&equal)
    );
    assert!((answered(&coded).p50 / answered(&equal).p50 - 1.0).abs() < 0.1);
    let share = coded.provenance[&Provenance::Reconstructed].share;
    assert!((0.001..0.06).contains(&share), "{share} reconstructed");
    assert!(!equal.provenance.contains_key(&Provenance::Reconstructed));
    assert!(coded.redundancy.won > 0 && coded.redundancy.issued >= coded.redundancy.groups);
    assert_eq!(coded.pools.len(), 2);
}

#[test]
fn every_strategy_answers_in_its_own_way() {
    for (strategy, provenance) in [
        ("replicate", Provenance::Hedged),
        ("hedge", Provenance::Hedged),
        ("approximate_backup", Provenance::Backup),
        ("coded:k=3:r=2", Provenance::Reconstructed),
        ("coded_hedged", Provenance::Reconstructed),
    ] {
        let simulated = with_stragglers(strategy);
        let (answers, redundancy) = (&simulated.provenance, simulated.redundancy);
        assert!(answers.contains_key(&provenance), "{strategy}: {answers:?}");
        assert!(
            redundancy.issued > 0 && redundancy.won > 0,
            "{strategy}: {redundancy:?}"
        );
        assert_eq!(
            simulated.counts.failed, 0,
            "{strategy}: {:?}",
            simulated.errors
        );
    }
}

#[test]
fn coding_is_no_help_when_everything_is_slow_together() {
    let slowdown = Some(Slowdown {
        share: 1.0,
        correlated: true,
        mean_interval_ms: 4_000.0,
        length: Span {
            min_ms: 500.0,
            max_ms: 1_000.0,
        },
        added: Span {
            min_ms: 20.0,
            max_ms: 20.0,
        },
    });
    let faults = FaultProfile {
        slowdown,
        ..constant(18.0)
    };
    let tail = |strategy: &str| {
        let simulated = run(simulation(strategy, 12, 6, load(150.0, 20_000)).with_faults(&faults));
        answered(&simulated).p99
    };
    let (coded, equal) = (tail("coded"), tail("equal_resources"));
    assert!(coded > 0.95 * equal, "{coded} ms against {equal} ms");
}

#[test]
fn crashes_cost_retries_and_instances_come_back() {
    let mut crashing = simulation("none", 12, 0, load(200.0, 20_000));
    crashing.crashes = Some(Crashes {
        mean_interval_ms: 10_000.0,
        away: Span {
            min_ms: 500.0,
            max_ms: 1_500.0,
        },
    });
    let simulated = run(crashing);
    assert!(simulated.retries > 10, "{} retries", simulated.retries);
    let failed = simulated.counts.failed as f64 / simulated.counts.planned as f64;
    assert!(failed < 0.001, "{failed} failed: {:?}", simulated.errors);
    let used = simulated.pools[0].utilisation;
    assert!(
        (0.25..0.35).contains(&used),
        "instances that are away do not come back: {used}"
    );
}

#[test]
fn too_much_load_is_refused_and_batches_fill() {
    let mut overloaded = simulation("none", 2, 0, load(2_000.0, 10_000));
    overloaded.pools[0].queue = 16;
    overloaded.pools[0].slots = 4;
    let simulated = run(overloaded);
    assert!(
        simulated.errors["http-503"] > 5_000,
        "{:?}",
        simulated.errors
    );
    let pool = &simulated.pools[0];
    // Batches of one and of three requests take turns: the first request never waited for company.
    assert!(
        (simulated.counts.answered as f64 / pool.batches as f64 - 2.0).abs() < 0.1,
        "{pool:?}"
    );
    assert!(pool.max_queue == 16 && pool.utilisation > 0.95, "{pool:?}");
}

#[test]
fn breaking_off_leaves_a_partial_result() {
    let simulator = Simulator::new(simulation("coded", 12, 6, load(270.0, 50_000))).unwrap();
    let mut looks = 0;
    let simulated = simulator.run(|progress| {
        looks += 1;
        if progress.sent > 20_000 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(simulated.partial && looks == 3);
    let counts = simulated.counts;
    assert_eq!(
        counts.planned,
        counts.answered + counts.failed + counts.unanswered + counts.unsent
    );
    assert!(counts.unsent > 20_000 && counts.answered > 20_000);
}

#[test]
fn senseless_simulations_are_refused() {
    let check = |change: fn(&mut Simulation)| {
        let mut simulation = simulation("none", 2, 0, load(100.0, 10));
        change(&mut simulation);
        let line = simulation.check().unwrap_err().to_string();
        assert!(!line.contains('\n') && line.contains("; "), "{line}");
        line
    };
    assert!(check(|simulation| simulation.load.rate = 0.0).starts_with("rate: 0"));
    assert!(check(|simulation| simulation.load.queries = 0).starts_with("queries: 0"));
    assert!(check(|simulation| simulation.pools[0].slots = 0).starts_with("slots"));
    assert!(
        check(|simulation| simulation.network.client.constant_ms = -1.0)
            .starts_with("network.client")
    );
    assert!(
        check(|simulation| simulation.pools[0].faults.error_probability = 2.0)
            .starts_with("faults")
    );
}
