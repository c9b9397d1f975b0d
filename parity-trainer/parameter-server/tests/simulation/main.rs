//! PS-1 to PS-8 in whole clusters, seed by seed. `PARAPET_SEED=n` replays one.

#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod cluster;

use std::collections::BTreeMap;

use cluster::{Bug, Simulation};

#[test]
fn thousand_clusters_keep_every_invariant() {
    let one = std::env::var("PARAPET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..1000, |seed: u64| seed..seed + 1);
    let mut sum: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds {
        match Simulation::new(seed, None).run() {
            Ok(tally) => {
                for (event, count) in tally {
                    *sum.entry(event).or_default() += count;
                }
            }
            Err(error) => failed.push(format!("seed {seed}: {error}")),
        }
    }
    println!("{sum:?}");
    let first = failed[..failed.len().min(10)].join("\n");
    assert!(failed.is_empty(), "{} failed:\n{first}", failed.len());
    // The clusters were not idle.
    const RARE: [(&str, usize); 4] =
        [("leave", 100), ("load plan", 200), ("plan taken back", 100), ("standby", 100)];
    let events = [
        "crash",
        "partition",
        "join",
        "split",
        "worker changed",
        "refused as not finite",
        "overflow",
        "eager rows",
        "decision",
        "overtaken",
        "given up",
        "head became tail",
        "new leader",
        "mirrored",
    ];
    for (event, least) in events.map(|event| (event, 300)).into_iter().chain(RARE) {
        let count = sum.get(event).copied().unwrap_or(0);
        assert!(one.is_some() || count > least, "{event}: {count}");
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let [a, b] = [(); 2].map(|()| Simulation::new(seed, None).run());
        assert_eq!(a, b);
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
        let mut errors = (0..300).filter_map(|seed| Simulation::new(seed, Some(bug)).run().err());
        let is_caught = errors.any(|error| error.starts_with(invariant));
        assert!(is_caught, "{bug:?} is not caught");
    }
}
