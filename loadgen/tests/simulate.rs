//! The simulator against what can be computed by hand.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;

use parapet_config::faults::{FaultProfile, Freezing, ServiceTime, Slowdown, Span, Straggling};
use parapet_loadgen::experiment::{Event, Experiment, What};
use parapet_loadgen::report::Summary;
use parapet_loadgen::schedule::Arrivals;
use parapet_loadgen::simulate::{Delay, Network, Simulated, Simulation, Simulator, simulations};
use parapet_loadgen::target::Provenance;
use proptest::prelude::*;

fn constant(ms: f64) -> FaultProfile {
    FaultProfile {
        seed: 3,
        service_time: Some(ServiceTime::Constant { ms }),
        ..FaultProfile::default()
    }
}

fn straggling(probability: f64, min_ms: f64, max_ms: f64) -> FaultProfile {
    let straggle = Straggling { probability, min_ms, max_ms };
    FaultProfile { straggle: Some(straggle), ..constant(18.0) }
}

fn span(min_ms: f64, max_ms: f64) -> Span {
    Span { min_ms, max_ms }
}

/// A network that always takes as long.
fn delays(constant_ms: f64) -> Network {
    let delay = Delay { constant_ms, exponential_ms: 0.0 };
    Network { client: delay, to_instance: delay, to_frontend: delay }
}

/// A strategy on so many instances and redundant ones, at a rate, for a number of queries.
fn setup(strategy: &str, instances: [usize; 2], rate: f64, queries: usize) -> Experiment {
    let mut setup = Experiment {
        strategies: vec![strategy.parse().unwrap()],
        rate,
        requests: queries,
        seed: 7,
        timeout_ms: 1000,
        faults: constant(18.0),
        ..Experiment::default()
    };
    [setup.instances.deployed, setup.instances.redundant] = instances;
    setup.simulation.network = delays(0.0);
    (setup.simulation.encode_ms, setup.simulation.decode_ms) = (0.0, 0.0);
    setup
}

/// A kill at the start of each block, of one instance after the other.
fn kills(setup: &Experiment, away_s: f64) -> Vec<Event> {
    let instances = setup.instances.deployed + setup.instances.redundant;
    let kill = |block| Event {
        block,
        after_s: 0.0,
        what: What::Kill,
        instance: block % instances,
        for_s: Some(away_s),
    };
    (0..setup.blocks).map(kill).collect()
}

fn simulation(setup: &Experiment) -> Simulation {
    simulations(setup).unwrap().remove(0)
}

fn run(simulation: Simulation) -> Simulated {
    let simulator = Simulator::new(simulation).unwrap();
    let simulated = simulator.run(|_| ControlFlow::Continue(()));
    assert!(!simulated.partial);
    let counts = simulated.counts;
    assert_eq!(counts.planned, counts.answered + counts.failed);
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
        let mut queue = setup("none", [1, 0], rate, 60_000);
        queue.faults.service_time = Some(service_time);
        queue.timeout_ms = 60_000;
        let simulated = run(simulation(&queue));
        let used = rate * mean / 1e3;
        let wait = rate / 1e3 * square / (2.0 * (1.0 - used));
        let measured = answered(&simulated).mean - mean;
        let error = measured / wait - 1.0;
        assert!(error.abs() < 0.05, "{measured} ms, expected {wait}");
        let pool = &simulated.pools[0];
        assert!((pool.utilisation / used - 1.0).abs() < 0.02, "{pool:?}");
        // Little's law.
        let queued = rate / 1e3 * measured;
        assert!((pool.mean_queue / queued - 1.0).abs() < 0.02, "{pool:?}");
    }
}

#[test]
fn an_idle_cluster_takes_service_time_and_network_exactly() {
    let mut quiet = setup("none", [4, 0], 20.0, 500);
    quiet.arrivals = Arrivals::Constant;
    quiet.simulation.network = delays(0.25);
    let mut quiet = simulation(&quiet);
    quiet.keep_records = true;
    let records = run(quiet).recording.unwrap().records;
    let mut latencies = records.iter().map(|it| it.latency_us());
    assert!(latencies.all(|latency| latency == Some(18_750)));
    assert_eq!(records.len(), 500);
}

#[test]
fn stragglers_have_their_share_of_the_tail() {
    let (probability, queries) = (0.05, 20_000);
    let mut sparse = setup("none", [8, 0], 25.0, queries);
    sparse.arrivals = Arrivals::Constant;
    sparse.faults = straggling(probability, 100.0, 200.0);
    let mut sparse = simulation(&sparse);
    sparse.keep_records = true;
    let records = run(sparse).recording.unwrap().records;
    let late = records.iter().filter(|it| it.latency_us() > Some(50_000));
    // Five standard deviations of the binomial distribution.
    let (late, mean) = (late.count() as f64, queries as f64 * probability);
    let spread = (mean * (1.0 - probability)).sqrt();
    assert!((late - mean).abs() < 5.0 * spread, "{late}, not {mean}");
}

#[test]
fn the_seed_determines_everything() {
    let once = |seed| {
        let mut setup = setup("coded", [12, 6], 270.0, 4_000);
        setup.seed = seed;
        setup.faults = FaultProfile {
            freeze: Some(Freezing { mean_interval_ms: 2_000.0, min_ms: 10.0, max_ms: 50.0 }),
            error_probability: 0.01,
            ..straggling(0.02, 15.0, 45.0)
        };
        setup.simulation.network = Network::default();
        setup.events = kills(&setup, 0.6);
        let mut simulation = simulation(&setup);
        simulation.keep_records = true;
        run(simulation)
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1).latency, once(2).latency);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens, every query has one answer, and no redundant request has two outcomes.
    #[test]
    fn nothing_is_lost(
        strategy in prop::sample::select(&[ "none", "equal_resources", "replicate", "hedge",
            "approximate_backup", "coded", "coded:k=3:r=2", "coded_hedged", ][..]),
        (instances, redundant, slots, batch) in (3_usize..6, 2_usize..4, 1_u32..4, 1_usize..4),
        (rate, seed) in (20.0_f64..1_500.0, any::<u64>()),
        (error_probability, probability, away_s) in (0.0..0.3, 0.0..0.5, 0.001..2.0),
    ) {
        let mut chaos = setup(strategy, [instances, redundant], rate, 400);
        (chaos.seed, chaos.instances.slots) = (seed, slots);
        let mut faults = straggling(probability, 5.0, 1_200.0);
        faults.error_probability = error_probability;
        faults.service_time = Some(ServiceTime::Constant { ms: 10.0 });
        faults.freeze = Some(Freezing { mean_interval_ms: 500.0, min_ms: 1.0, max_ms: 300.0 });
        chaos.faults = faults;
        let around = &mut chaos.simulation;
        (around.max_batch_size, around.instance_queue) = (batch, 2);
        around.network = Network::default();
        chaos.events = kills(&chaos, away_s);
        let simulated = run(simulation(&chaos));
        let answers: u64 = simulated.provenance.values().map(|of_kind| of_kind.count).sum();
        prop_assert_eq!(answers, simulated.counts.answered as u64);
        let work = simulated.redundancy;
        prop_assert!(work.won + work.wasted + work.failed <= work.issued, "{:?}", work);
        let longest = simulated.latency.all.unwrap().max;
        prop_assert!(longest < 1_005.0, "{} ms is past the deadline", longest);
        prop_assert!(simulated.pools.iter().all(|pool| pool.utilisation <= 1.0));
    }
}

fn with_stragglers(strategy: &str) -> Simulated {
    let mut setup = setup(strategy, [12, 6], 270.0, 20_000);
    setup.faults = straggling(0.01, 15.0, 45.0);
    run(simulation(&setup))
}

/// ParM, section 5.2: with as many instances, coding cuts the tail that stragglers make.
#[test]
fn coding_beats_equal_resources_when_few_straggle() {
    let coded = with_stragglers("coded");
    let equal = with_stragglers("equal_resources");
    let (tail, equal_tail) = (answered(&coded).p99_9, answered(&equal).p99_9);
    assert!(tail < 0.75 * equal_tail, "{tail} ms against {equal_tail} ms");
    assert!((answered(&coded).p50 / answered(&equal).p50 - 1.0).abs() < 0.1);
    let share = coded.provenance[&Provenance::Reconstructed].share;
    assert!((0.001..0.06).contains(&share), "{share} reconstructed");
    assert!(!equal.provenance.contains_key(&Provenance::Reconstructed));
    let work = coded.redundancy;
    assert!(work.won > 0 && work.issued >= work.groups);
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
        let (answers, work) = (&simulated.provenance, simulated.redundancy);
        assert!(answers.contains_key(&provenance), "{strategy}: {answers:?}");
        assert!(work.issued > 0 && work.won > 0, "{strategy}: {work:?}");
        assert_eq!(simulated.counts.failed, 0, "{strategy}");
    }
}

#[test]
fn coding_is_no_help_when_everything_is_slow_together() {
    let slowdown = Slowdown {
        share: 1.0,
        correlated: true,
        mean_interval_ms: 4_000.0,
        length: span(500.0, 1_000.0),
        added: span(20.0, 20.0),
    };
    let tail = |strategy: &str| {
        let mut setup = setup(strategy, [12, 6], 150.0, 20_000);
        setup.faults.slowdown = Some(slowdown);
        answered(&run(simulation(&setup))).p99
    };
    let (coded, equal) = (tail("coded"), tail("equal_resources"));
    assert!(coded > 0.95 * equal, "{coded} ms against {equal} ms");
}

#[test]
fn crashes_cost_retries_and_instances_come_back() {
    let mut crashing = setup("none", [12, 0], 200.0, 20_000);
    crashing.blocks = 100;
    crashing.events = kills(&crashing, 0.9);
    let simulated = run(simulation(&crashing));
    assert!(simulated.retries > 10, "{} retries", simulated.retries);
    let counts = simulated.counts;
    let failed = counts.failed as f64 / counts.planned as f64;
    assert!(failed < 0.001, "{failed} failed: {:?}", simulated.errors);
    let used = simulated.pools[0].utilisation;
    assert!((0.25..0.35).contains(&used), "{used} of those that came back");
}

/// Of some instances whose service times vary one freezes, and takes what it has with it.
#[test]
fn defaults_hold_no_answer_back_for_a_frozen_instance() {
    let mut slow = Vec::new();
    for strategy in ["hedge", "coded", "coded_hedged", "approximate_backup"] {
        for instances in [2, 4, 8] {
            let mut frozen = setup(strategy, [instances, 2], 100.0, 2_000);
            frozen.faults.service_time = Some(ServiceTime::Constant { ms: 5.0 });
            frozen.faults.straggle = straggling(0.1, 1.0, 15.0).straggle;
            (frozen.blocks, frozen.instances.slots) = (1, 2);
            frozen.events = vec![Event {
                block: 0,
                after_s: 10.0,
                what: What::Freeze,
                instance: 0,
                for_s: Some(2.5),
            }];
            let simulated = run(simulation(&frozen));
            let (slowest, failed) = (answered(&simulated).max, simulated.counts.failed);
            if slowest > 100.0 || failed > 0 {
                slow.push(format!("{strategy}, {instances}: {slowest} ms, {failed} failed"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// One instance, idle but for the query at hand, stands still for a second, and is away for another
/// in the next block.
#[test]
fn events_happen_when_they_are_said_to() {
    let mut single = setup("none", [1, 0], 50.0, 400);
    (single.arrivals, single.blocks, single.timeout_ms) = (Arrivals::Constant, 2, 2000);
    single.faults = constant(1.0);
    let event = |block, after_s, what, for_s| Event {
        block,
        after_s,
        what,
        instance: 0,
        for_s: Some(for_s),
    };
    single.events = vec![event(0, 1.0, What::Freeze, 1.0), event(1, 3.5, What::Kill, 9.0)];
    let mut single = simulation(&single);
    single.keep_records = true;
    let records = run(single).recording.unwrap().records;
    let slow = |from: u64, until: u64| -> Vec<u64> {
        let due = records.iter().filter(|it| (from..until).contains(&it.planned_us));
        let latencies = due.filter_map(|it| it.latency_us());
        latencies.filter(|latency| *latency > 100_000).collect()
    };
    assert!(slow(0, 900_000).is_empty());
    let stopped = slow(900_000, 2_100_000);
    // 50/s: those of the second but its last tenth; the first has waited almost all of it.
    assert!((40..=50).contains(&stopped.len()), "{stopped:?}");
    assert!(stopped[0] > 950_000, "{stopped:?}");
    assert!(slow(2_300_000, 7_400_000).is_empty());
    let failed = records.iter().filter(|it| it.answer().is_none());
    let away = slow(7_400_000, 8_000_000).len() + failed.count();
    assert!(away > 10, "{away}");
}

#[test]
fn too_much_load_is_refused_and_batches_fill() {
    let mut overloaded = simulation(&setup("none", [2, 0], 2_000.0, 10_000));
    overloaded.core.pools[0].queue = 16;
    overloaded.core.pools[0].slots = 4;
    let simulated = run(overloaded);
    let refused = simulated.errors["http-503"];
    assert!(refused > 5_000, "{refused}");
    let pool = &simulated.pools[0];
    // Batches of one and of three requests take turns: the first request never waited for company.
    let mean_batch = simulated.counts.answered as f64 / pool.batches as f64;
    assert!((mean_batch - 2.0).abs() < 0.1, "{pool:?}");
    assert!(pool.max_queue == 16 && pool.utilisation > 0.95, "{pool:?}");
}

#[test]
fn breaking_off_leaves_a_partial_result() {
    let long = simulation(&setup("coded", [12, 6], 270.0, 50_000));
    let mut looks = 0;
    let simulated = Simulator::new(long).unwrap().run(|sent| {
        looks += 1;
        match sent > 20_000 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    assert!(simulated.partial && looks == 3);
    let counts = simulated.counts;
    let ends = counts.answered + counts.failed + counts.unanswered;
    assert_eq!(counts.planned, ends + counts.unsent);
    assert!(counts.unsent > 20_000 && counts.answered > 20_000);
}

#[test]
fn senseless_simulations_are_refused() {
    for (change, says) in [
        ((|it| it.experiment.rate = 0.0) as fn(&mut Simulation), "rate: 0; give a positive"),
        (|it| it.experiment.requests = 0, "queries: 0; give 1 to"),
        (|it| it.core.pools[0].slots = 0, "slots: 0 or too many; give"),
        (|it| it.experiment.timeout_ms = 0, "deadline: 0; give"),
        (
            |it| it.experiment.simulation.network.client.constant_ms = -1.0,
            "network.client: -1 + 0 ms; give",
        ),
        (|it| it.experiment.faults.error_probability = 2.0, "faults: "),
    ] {
        let mut simulation = simulation(&setup("none", [2, 0], 100.0, 10));
        change(&mut simulation);
        let line = simulation.check().unwrap_err().to_string();
        assert!(line.starts_with(says) && line.contains("; "), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}
