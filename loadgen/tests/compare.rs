//! The figures of comparisons whose truth is known.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use parapet_loadgen::compare::{
    Bootstrap, CompareReport, Comparison, SCHEMA, WarningKind, analyse, samples_needed,
};
use parapet_loadgen::target::Provenance;
use synthetic::{KINDS, Size, comparison};

const DRAWS: Bootstrap = Bootstrap { resamples: 200, seed: 5 };

fn small() -> Comparison {
    comparison(&KINDS, Size::new(10, 4.0))
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
    assert!(range.low > 2.0 && (range.low..=range.high).contains(&ratio.value), "{ratio:?}");
    assert!((0.45..0.55).contains(&coded.cost.extra_work.unwrap()));
    let reconstructed = &coded.provenance[&Provenance::Reconstructed];
    assert!(reconstructed.accuracy.unwrap().accuracy < 0.95);
    let mut points = coded.spectrum.windows(2);
    assert!(points.all(|it| it[0].ms <= it[1].ms && it[0].quantile < it[1].quantile));
    assert_eq!(coded.spectrum.last().unwrap().ms, coded.latency.max);
    let due: usize = coded.series.bins.iter().map(|bin| bin.count).sum();
    assert_eq!(due as u64, coded.latency.count);
    assert!(report.valid && !report.partial);
    let mut warnings = report.warnings.iter();
    let replicated = Some("replicated".to_owned());
    assert!(warnings.any(|it| it.kind == WarningKind::Loses && it.strategy == replicated));
}

#[test]
fn the_same_seed_draws_the_same_intervals() {
    let comparison = small();
    let report = figures(&comparison);
    assert_eq!(report, figures(&comparison));
    let other = analyse(&comparison, "spread", Bootstrap { seed: 6, ..DRAWS }).unwrap();
    assert_ne!(report.strategies[1].gap_ratio, other.strategies[1].gap_ratio);
    assert_eq!(report.strategies[1].latency, other.strategies[1].latency);
}

#[test]
fn the_baseline_is_as_good_as_itself() {
    let report = figures(&small());
    let base = report.strategy("spread").unwrap();
    for ratio in [base.gap_ratio.unwrap(), base.p50_ratio.unwrap()] {
        let range = ratio.interval.unwrap();
        assert_eq!((ratio.value, range.low, range.high), (1.0, 1.0, 1.0));
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
        let ratios = [strategy.gap_ratio, strategy.p50_ratio];
        let estimates = ratios.into_iter().flatten().chain([strategy.gap_ms]);
        for estimate in estimates {
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
    let mut comparison = comparison(&KINDS, Size::new(2, 2.0));
    comparison.strategies[1].blocks[0].valid = false;
    comparison.strategies[2].instances = Some(7);
    comparison.strategies[1].repeated_blocks = 3;
    let report = figures(&comparison);
    assert!(!report.valid);
    assert_eq!(report.strategies[1].repeated_blocks, 3);
    let again = "coded: 3 blocks were measured again, since the generator was late";
    assert!(report.warnings.iter().any(|it| it.text.starts_with(again)));
    let found = kinds(&report);
    assert_eq!(found[0], WarningKind::InvalidGenerator);
    for kind in [WarningKind::UnequalInstances, WarningKind::FewRounds, WarningKind::NotQuotable] {
        assert!(found.contains(&kind), "{kind:?}");
    }
    let spread = &report.strategies[0];
    let (p99, p99_9) = (spread.confidence["p99"], spread.confidence["p99_9"]);
    assert_eq!(p99.needs_samples, 0);
    assert_eq!(p99_9.needs_samples, 3688 - spread.latency.count);
}

#[test]
fn the_table_says_what_is_not_to_be_quoted() {
    let text = figures(&comparison(&KINDS, Size::new(3, 2.0))).to_string();
    for expected in [
        "warning: 3 rounds are few",
        "times narrower, against spread",
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
    let unknown = "baseline \"none\" is not among the strategies; choose one of";
    for (comparison, baseline, says) in [
        (comparison, "none", unknown),
        (twice, "spread", "two strategies are named \"spread\""),
        (empty, "spread", "no round was finished by all strategies"),
        (idle, "spread", "strategy \"spread\" was sent no request"),
    ] {
        let error = analyse(&comparison, baseline, DRAWS).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
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
fn the_samples_that_the_rule_needs() {
    let needed = [0.5, 0.9, 0.99, 0.999].map(samples_needed);
    assert_eq!(needed, [6, 36, 368, 3688]);
}
