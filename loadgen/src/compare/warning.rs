//! Warnings that a reader of a comparison should know before its figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CompareReport, Estimate, StrategyReport};
use crate::report::table::percent;

/// A reason not to take the figures at their face.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    pub kind: WarningKind,
    /// The strategy that it is about; `None` if it is about all.
    pub strategy: Option<String>,
    /// Problem and remedy, in a line.
    pub text: String,
}

/// Kinds of warnings.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The generator was late.
    InvalidGenerator,
    /// The machine stood still.
    StalledHost,
    /// The generator was late or the machine stood still, and what was measured then
    /// was measured again.
    Repeated,
    /// The comparison was ended early.
    Partial,
    /// Strategies had different numbers of instances.
    UnequalInstances,
    /// Requests had no answer.
    NoAnswer,
    /// The rounds are too few for the bootstrap.
    FewRounds,
    /// A percentile has too few samples.
    NotQuotable,
    /// The strategy does worse than the baseline.
    Loses,
}

/// Rounds below which the bootstrap's intervals are too narrow to be trusted.
const FEW_ROUNDS: usize = 8;
/// Median over the baseline's from which a strategy loses.
const SLOWER: f64 = 1.05;

/// All there is to say about a report, most serious kinds first.
pub(super) fn warnings(report: &CompareReport) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if report.partial {
        let (done, planned) = (report.rounds, report.settings.blocks);
        let text = format!(
            "ended early: {done} of {planned} rounds were finished by all strategies, and only \
                these count"
        );
        warnings.push(Warning {
            kind: WarningKind::Partial,
            strategy: None,
            text,
        });
    }
    if report.rounds < FEW_ROUNDS {
        let rounds = report.rounds;
        let text = format!(
            "{rounds} rounds are few for the bootstrap, whose intervals are then too narrow; run \
                at least {FEW_ROUNDS}"
        );
        warnings.push(Warning {
            kind: WarningKind::FewRounds,
            strategy: None,
            text,
        });
    }
    let counts: Vec<usize> = report
        .strategies
        .iter()
        .filter_map(|strategy| strategy.instances)
        .collect();
    if counts.iter().any(|count| *count != counts[0]) {
        let text = format!(
            "the strategies ran on {counts:?} instances, so part of any difference is hardware"
        );
        warnings.push(Warning {
            kind: WarningKind::UnequalInstances,
            strategy: None,
            text,
        });
    }
    for strategy in &report.strategies {
        let about = |(kind, text)| Warning {
            kind,
            strategy: Some(strategy.name.clone()),
            text,
        };
        warnings.extend(of_strategy(strategy, report).into_iter().map(about));
    }
    warnings.sort_by_key(|warning| warning.kind);
    warnings
}

fn of_strategy(strategy: &StrategyReport, report: &CompareReport) -> Vec<(WarningKind, String)> {
    let mut found = Vec::new();
    let StrategyReport {
        name,
        invalid_blocks,
        repeated_blocks,
        stalled_repeats,
        stalled_blocks,
        counts,
        ..
    } = strategy;
    if *invalid_blocks > 0 {
        let text = format!(
            "{name}: the generator was late in {invalid_blocks} of {} blocks, which measure the \
                generator; lower the rate or free a core",
            report.rounds
        );
        found.push((WarningKind::InvalidGenerator, text));
    }
    if *stalled_blocks > 0 {
        let text = format!(
            "{name}: the machine stood still for a thousandth of the time or longer in \
                {stalled_blocks} of {} blocks, which its p99.9 may show; use a machine whose host \
                is less busy",
            report.rounds
        );
        found.push((WarningKind::StalledHost, text));
    }
    let late = repeated_blocks.saturating_sub(*stalled_repeats);
    for (times, what) in [
        (late, "the generator was late"),
        (*stalled_repeats, "the machine stood still"),
    ] {
        if times > 0 {
            let times = if times == 1 {
                "once".to_owned()
            } else {
                format!("{times} times")
            };
            let text = format!("{name}: {what} {times}, and the block was measured again");
            found.push((WarningKind::Repeated, text));
        }
    }
    let without = counts.failed + counts.unanswered;
    if without > 0 {
        let share = percent(Some(without as f64 / counts.planned.max(1) as f64));
        let text = format!(
            "{name}: no answer to {without} of the requests ({share}), which count as the timeout or longer"
        );
        found.push((WarningKind::NoAnswer, text));
    }
    let short = strategy
        .confidence
        .iter()
        .filter(|(_, confidence)| !confidence.quotable);
    if let Some((percentile, confidence)) =
        short.max_by_key(|(_, confidence)| confidence.needs_samples)
    {
        let text = format!(
            "{name}: {} is not to be quoted before {} more requests",
            percentile.replace('_', "."),
            confidence.needs_samples
        );
        found.push((WarningKind::NotQuotable, text));
    }
    if strategy.name != report.baseline {
        found.extend(losses(strategy, &report.baseline).map(|text| (WarningKind::Loses, text)));
    }
    found
}

fn losses(strategy: &StrategyReport, baseline: &str) -> impl Iterator<Item = String> {
    let name = &strategy.name;
    let gap = strategy
        .gap_ratio
        .filter(|ratio| ratio.interval.is_some_and(|range| range.high < 1.0));
    let gap = gap.map(|ratio| {
        let wider = 1.0 / ratio.value;
        format!(
            "{name} loses: its gap between p99.9 and p50 is {wider:.2} times that of {baseline}"
        )
    });
    let slower = |ratio: &Estimate| {
        ratio.value > SLOWER && ratio.interval.is_some_and(|range| range.low > 1.0)
    };
    let median = strategy.p50_ratio.filter(slower);
    let median = median.map(|ratio| {
        let more = 100.0 * (ratio.value - 1.0);
        format!("{name} loses: its median is {more:.0} % above that of {baseline}")
    });
    gap.into_iter().chain(median)
}
