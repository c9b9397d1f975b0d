//! PS-1 to PS-8 in whole clusters, seed by seed. `PARAPET_SEED=n` replays one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod sim;

use sim::{Bug, Simulation, Tally};

#[test]
fn a_thousand_clusters_keep_every_invariant() {
    let one = std::env::var("PARAPET_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..1000, |seed: u64| seed..seed + 1);
    let mut sum = Tally::default();
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        match Simulation::new(seed, None).run() {
            Ok(tally) => {
                sum.crashes += tally.crashes;
                sum.partitions += tally.partitions;
                sum.joins += tally.joins;
                sum.splits += tally.splits;
                sum.worker_changes += tally.worker_changes;
                sum.refused_not_finite += tally.refused_not_finite;
                sum.overflows += tally.overflows;
                sum.eager_rows += tally.eager_rows;
                sum.virtual_ms += tally.virtual_ms;
                sum.decisions += tally.decisions;
                sum.overtaken += tally.overtaken;
                sum.given_up += tally.given_up;
                sum.leaves += tally.leaves;
                sum.new_leaders += tally.new_leaders;
            }
            Err(error) => failed.push(format!("seed {seed}: {error}")),
        }
    }
    println!("{sum:?}");
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed[..failed.len().min(10)].join("\n")
    );
    // The clusters were not idle.
    if one.is_none() {
        let enough = [
            sum.crashes,
            sum.partitions,
            sum.joins,
            sum.splits,
            sum.worker_changes,
            sum.refused_not_finite,
            sum.overflows,
            sum.eager_rows,
            sum.decisions,
            sum.overtaken,
            sum.given_up,
            sum.new_leaders,
        ];
        assert!(
            enough.iter().all(|&count| count > 300) && sum.leaves > 100,
            "{sum:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let [a, b] = [(); 2].map(|()| Simulation::new(seed, None).run().unwrap());
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
}

#[test]
fn planted_bugs_are_caught() {
    let bugs = [
        (Bug::AcknowledgesEarly, "PS-1"),
        (Bug::IgnoresEpochs, "PS-1"),
        (Bug::AppliesTwice, "PS-"),
        (Bug::ForgetsDelta, "PS-"),
        (Bug::ReadsTooEarly, "PS-4"),
        (Bug::SkipsFiniteCheck, "PS-7"),
    ];
    for (bug, invariant) in bugs {
        let caught = (0..300)
            .filter_map(|seed| Simulation::new(seed, Some(bug)).run().err())
            .find(|error| error.starts_with(invariant));
        assert!(caught.is_some(), "{bug:?} is not caught");
    }
}
