//! The figures of comparisons whose truth is known.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use parapet_loadgen::compare::{
    Bootstrap, CompareReport, Comparison, HostStalls, OrderInterval, SCHEMA, WarningKind, analyse,
    samples_needed,
};
use parapet_loadgen::report::{Diff, diff, read_report};
use parapet_loadgen::target::Provenance;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use synthetic::{KINDS, Size, comparison};

const DRAWS: Bootstrap = Bootstrap {
    resamples: 200,
    seed: 5,
};

fn small() -> Comparison {
    comparison(
        &KINDS,
        Size {
            blocks: 10,
            block_s: 4.0,
            ..Size::default()
        },
    )
}

fn figures(comparison: &Comparison) -> CompareReport {
    analyse(comparison, "spread", DRAWS).unwrap()
}

fn kinds(report: &CompareReport) -> Vec<WarningKind> {
    report.warnings.iter().map(|warning| warning.kind).collect()
}

#[test]
fn a_strategy_that_cuts_the_tail_shows_it() {
    let report = figures(&small());
    let coded = report.strategy("coded").unwrap();
    let ratio = coded.gap_ratio.unwrap();
    let range = ratio.interval.unwrap();
    assert!(range.low > 2.0 && range.contains(ratio.value), "{ratio:?}");
    assert!((0.45..0.55).contains(&coded.cost.extra_work.unwrap()));
    assert!(
        coded.provenance[&Provenance::Reconstructed]
            .accuracy
            .unwrap()
            .accuracy
            < 0.95
    );
    assert!(
        coded
            .spectrum
            .is_sorted_by(|one, next| one.ms <= next.ms && one.quantile < next.quantile)
    );
    assert_eq!(coded.spectrum.last().unwrap().ms, coded.latency.max);
    let due: usize = coded.series.bins.iter().map(|bin| bin.count).sum();
    assert_eq!(due as u64, coded.latency.count);
    assert!(report.valid && !report.partial);
    let loses: Vec<_> = report
        .warnings
        .iter()
        .filter(|warning| warning.kind == WarningKind::Loses)
        .collect();
    assert!(
        loses
            .iter()
            .any(|warning| warning.strategy.as_deref() == Some("replicated")),
        "{loses:?}"
    );
}

#[test]
fn the_same_seed_draws_the_same_intervals() {
    let comparison = small();
    let report = figures(&comparison);
    assert_eq!(report, figures(&comparison));
    let other = analyse(&comparison, "spread", Bootstrap { seed: 6, ..DRAWS }).unwrap();
    assert_ne!(
        report.strategies[1].gap_ratio,
        other.strategies[1].gap_ratio
    );
    assert_eq!(report.strategies[1].latency, other.strategies[1].latency);
}

#[test]
fn the_baseline_is_as_good_as_itself() {
    let report = figures(&small());
    let base = report.strategy("spread").unwrap();
    for ratio in [base.gap_ratio.unwrap(), base.p50_ratio.unwrap()] {
        assert_eq!(
            (
                ratio.value,
                ratio.interval.unwrap().low,
                ratio.interval.unwrap().high
            ),
            (1.0, 1.0, 1.0)
        );
    }
}

#[test]
fn blocks_without_differences_leave_no_doubt() {
    let mut comparison = small();
    for strategy in &mut comparison.strategies {
        let first = strategy.blocks[0].clone();
        strategy.blocks.fill(first);
    }
    for strategy in figures(&comparison).strategies {
        for estimate in [
            Some(strategy.gap_ms),
            strategy.gap_ratio,
            strategy.p50_ratio,
        ]
        .into_iter()
        .flatten()
        {
            let range = estimate.interval.unwrap();
            assert_eq!((range.low, range.high), (estimate.value, estimate.value));
        }
    }
}

#[test]
fn only_rounds_that_all_finished_count() {
    let mut comparison = small();
    let whole = figures(&comparison);
    comparison.strategies[3].blocks.pop();
    comparison.strategies[1].blocks[8].recording.partial = true;
    let report = figures(&comparison);
    assert!(report.partial && !whole.partial);
    assert_eq!((whole.rounds, report.rounds), (10, 8));
    assert!(kinds(&report).contains(&WarningKind::Partial));
    assert!(report.strategies[0].latency.count < whole.strategies[0].latency.count);
}

#[test]
fn what_makes_figures_doubtful_is_said_first() {
    let mut comparison = comparison(
        &KINDS,
        Size {
            blocks: 2,
            block_s: 2.0,
            ..Size::default()
        },
    );
    comparison.strategies[1].blocks[0].valid = false;
    comparison.strategies[2].instances = Some(7);
    let report = figures(&comparison);
    assert!(!report.valid);
    let found = kinds(&report);
    assert_eq!(found[0], WarningKind::InvalidGenerator);
    for kind in [
        WarningKind::UnequalInstances,
        WarningKind::FewRounds,
        WarningKind::NotQuotable,
    ] {
        assert!(found.contains(&kind), "{kind:?}");
    }
    let confidence = &report.strategies[0].confidence;
    assert!(confidence["p99"].quotable && !confidence["p99_9"].quotable);
    assert_eq!(
        confidence["p99_9"].needs_samples,
        3688 - report.strategies[0].latency.count
    );
}

#[test]
fn a_machine_that_stood_still_is_said_and_makes_nothing_invalid() {
    let mut comparison = comparison(&KINDS, Size::default());
    let name = comparison.strategies[1].name.clone();
    comparison.strategies[1].stalled_repeats = 1;
    comparison.strategies[1].repeated_blocks = 3;
    let block = &mut comparison.strategies[1].blocks[0];
    let thousandth_ms = block.recording.ended.as_secs_f64();
    let stalls = |total_ms| {
        Some(HostStalls {
            total_ms,
            longest_ms: total_ms,
        })
    };
    block.stalls = stalls(thousandth_ms * 0.99);
    assert!(!block.is_disturbed());
    block.stalls = stalls(thousandth_ms * 1.01);
    assert!(block.is_disturbed());
    let report = figures(&comparison);
    assert!(report.valid);
    let of_strategy = &report.strategies[1];
    assert_eq!(
        (
            of_strategy.stalled_blocks,
            of_strategy.stalled_repeats,
            of_strategy.repeated_blocks
        ),
        (1, 1, 3)
    );
    let about = report
        .warnings
        .iter()
        .filter(|warning| warning.strategy.as_ref() == Some(&name));
    let texts: Vec<&str> = about.map(|warning| warning.text.as_str()).collect();
    for expected in [
        "in 1 of",
        "the generator was late 2 times",
        "the machine stood still once",
    ] {
        assert!(
            texts.iter().any(|text| text.contains(expected)),
            "{expected} in {texts:?}"
        );
    }
}

#[test]
fn the_table_says_what_is_not_to_be_quoted() {
    let text = figures(&comparison(
        &KINDS,
        Size {
            blocks: 3,
            block_s: 2.0,
            ..Size::default()
        },
    ))
    .to_string();
    for expected in [
        "warning: 3 rounds are few",
        "times narrower",
        "against spread",
        " to ",
        "*",
        "unrecoverable",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn nothing_to_compare_is_an_error_that_says_so() {
    let comparison = small();
    let mut twice = comparison.clone();
    twice.strategies[1].name = "spread".to_owned();
    let mut empty = comparison.clone();
    empty.strategies[0].blocks.clear();
    let mut idle = comparison.clone();
    for block in &mut idle.strategies[0].blocks {
        block.recording.records.clear();
    }
    for (comparison, baseline, says) in [
        (
            comparison,
            "none",
            "baseline \"none\" is not among the strategies; choose one of",
        ),
        (twice, "spread", "two strategies are named \"spread\""),
        (empty, "spread", "no round was finished by all strategies"),
        (idle, "spread", "strategy \"spread\" was sent no request"),
    ] {
        let error = analyse(&comparison, baseline, DRAWS)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(says), "{error}");
    }
}

/// Other programs read these names: a change needs a new [`SCHEMA`].
#[test]
fn a_report_survives_its_json() {
    let report = figures(&small());
    let text = serde_json::to_string(&report).unwrap();
    let read: CompareReport = serde_json::from_str(&text).unwrap();
    assert_eq!(read.schema, SCHEMA);
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(text.len() < 200_000, "{} bytes", text.len());
}

#[test]
fn a_difference_says_whether_intervals_overlap() {
    let (one, better) = (
        figures(&small()),
        figures(&comparison(
            &KINDS,
            Size {
                seed: 9,
                block_s: 4.0,
                ..Size::default()
            },
        )),
    );
    let read =
        |report: &CompareReport| read_report("a", &serde_json::to_string(report).unwrap()).unwrap();
    let within = |diff: &Diff, figure: &str| {
        let (_, changes) = &diff.parts[1];
        changes
            .iter()
            .find(|change| change.figure == figure)
            .unwrap()
            .within
    };
    let same = diff(&read(&one), &read(&one), "b").unwrap();
    assert!(same.notes.is_empty() && within(&same, "p50, ms") == Some(true));
    let mut slow = comparison(
        &KINDS,
        Size {
            block_s: 4.0,
            ..Size::default()
        },
    );
    let records = slow.strategies[1]
        .blocks
        .iter_mut()
        .flat_map(|block| &mut block.recording.records);
    records.for_each(|record| record.done_us = record.done_us.map(|done| done + 5_000));
    slow.strategies[3].name = "doubled".to_owned();
    let slower = diff(&read(&one), &read(&figures(&slow)), "b").unwrap();
    assert_eq!(
        (within(&slower, "p50, ms"), within(&slower, "accuracy, %")),
        (Some(false), Some(true))
    );
    let text = slower.to_string();
    assert!(
        text.contains("replicated is in the first report alone") && text.contains("apart"),
        "{text}"
    );
    assert!(
        diff(&read(&one), &read(&better), "b").unwrap().notes[0]
            .starts_with("setting seed differs")
    );
}

#[test]
fn the_samples_that_the_rule_needs() {
    assert_eq!(
        [0.5, 0.9, 0.99, 0.999].map(samples_needed),
        [6, 36, 368, 3688]
    );
    assert_eq!(OrderInterval::of(3687, 0.999), None);
    assert_eq!(OrderInterval::of(3688, 0.999).unwrap().high, 3688);
}

/// The table of Hahn and Meeker for the median of 20: ranks 6 and 15 enclose it with 95.9 %.
#[test]
fn a_known_interval() {
    assert_eq!(
        OrderInterval::of(20, 0.5),
        Some(OrderInterval { low: 6, high: 15 })
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn order_intervals_enclose_the_quantile_as_often_as_they_say(
        samples in 40_u64..1500,
        quantile in prop::sample::select(vec![0.5, 0.9, 0.99]),
        seed in any::<u64>(),
    ) {
        const TRIALS: usize = 600;
        prop_assume!(samples >= samples_needed(quantile));
        let ranks = OrderInterval::of(samples, quantile).unwrap();
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let encloses = |_: &usize| {
            // Of uniform samples, the quantile q is q; how many lie below says which ranks enclose
            // it.
            let below = (0..samples)
                .filter(|_| random.random::<f64>() < quantile)
                .count() as u64;
            (ranks.low..ranks.high).contains(&below)
        };
        let hits = (0..TRIALS).filter(encloses).count();
        // 95 % less four standard deviations.
        prop_assert!(
            hits as f64 > (0.95 - 4.0 * (0.95_f64 * 0.05 / TRIALS as f64).sqrt()) * TRIALS as f64,
            "{hits}"
        );
    }
}
