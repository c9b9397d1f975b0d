//! Warnings that a reader of a comparison should know before its figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CompareReport, Estimate, Interval, StrategyReport};
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
    let mut about_all = |kind, text| {
        warnings.push(Warning {
            kind,
            strategy: None,
            text,
        });
    };
    let (rounds, planned) = (report.rounds, report.settings.blocks);
    if report.partial {
        let text = format!(
            "ended early: {rounds} of {planned} rounds were finished by all strategies, and only \
             these count"
        );
        about_all(WarningKind::Partial, text);
    }
    if rounds < FEW_ROUNDS {
        let text = format!(
            "{rounds} rounds are few for the bootstrap, whose intervals are then too narrow; run \
             at least {FEW_ROUNDS}"
        );
        about_all(WarningKind::FewRounds, text);
    }
    let counts = report
        .strategies
        .iter()
        .filter_map(|strategy| strategy.instances);
    let counts: Vec<usize> = counts.collect();
    if counts.iter().any(|count| *count != counts[0]) {
        let text = format!(
            "the strategies ran on {counts:?} instances, so part of any difference is hardware"
        );
        about_all(WarningKind::UnequalInstances, text);
    }
    for strategy in &report.strategies {
        let name = &strategy.name;
        let about = |(kind, text)| Warning {
            kind,
            strategy: Some(name.clone()),
            text: format!("{name}{text}"),
        };
        let found = measurement(strategy, report).into_iter();
        let lost = losses(strategy, &report.baseline).into_iter();
        let lost = lost.map(|text| (WarningKind::Loses, format!(" loses: {text}")));
        warnings.extend(found.chain(lost).map(about));
    }
    warnings.sort_by_key(|warning| warning.kind);
    warnings
}

/// Doubts in how a strategy was measured; each text follows the strategy's name.
fn measurement(strategy: &StrategyReport, report: &CompareReport) -> Vec<(WarningKind, String)> {
    let mut found = Vec::new();
    let rounds = report.rounds;
    let StrategyReport {
        invalid_blocks,
        repeated_blocks,
        stalled_repeats,
        stalled_blocks,
        counts,
        ..
    } = strategy;
    if *invalid_blocks > 0 {
        let text = format!(
            ": the generator was late in {invalid_blocks} of {rounds} blocks, which measure the \
             generator; lower the rate or free a core"
        );
        found.push((WarningKind::InvalidGenerator, text));
    }
    if *stalled_blocks > 0 {
        let text = format!(
            ": the machine stood still for a thousandth of the time or longer in {stalled_blocks} \
             of {rounds} blocks, which its p99.9 may show; use a machine whose host is less busy"
        );
        found.push((WarningKind::StalledHost, text));
    }
    let late = repeated_blocks.saturating_sub(*stalled_repeats);
    for (times, what) in [
        (late, "the generator was late"),
        (*stalled_repeats, "the machine stood still"),
    ] {
        let times = match times {
            0 => continue,
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        let text = format!(": {what} {times}, and the block was measured again");
        found.push((WarningKind::Repeated, text));
    }
    let without = counts.failed + counts.unanswered;
    if without > 0 {
        let share = percent(Some(without as f64 / counts.planned.max(1) as f64));
        let text = format!(
            ": no answer to {without} of the requests ({share}), which count as the timeout or \
             longer"
        );
        found.push((WarningKind::NoAnswer, text));
    }
    let short = strategy
        .confidence
        .iter()
        .filter(|(_, confidence)| !confidence.quotable);
    let shortest = short.max_by_key(|(_, confidence)| confidence.needs_samples);
    if let Some((percentile, confidence)) = shortest {
        let (percentile, needed) = (percentile.replace('_', "."), confidence.needs_samples);
        let text = format!(": {percentile} is not to be quoted before {needed} more requests");
        found.push((WarningKind::NotQuotable, text));
    }
    found
}

/// Figures in which a strategy is surely worse than the baseline.
fn losses(strategy: &StrategyReport, baseline: &str) -> Vec<String> {
    let mut losses = Vec::new();
    if strategy.name == baseline {
        return losses;
    }
    let surely = |ratio: Option<Estimate>, worse: fn(Interval) -> bool| {
        ratio
            .filter(|ratio| ratio.interval.is_some_and(worse))
            .map(|ratio| ratio.value)
    };
    if let Some(ratio) = surely(strategy.gap_ratio, |range| range.high < 1.0) {
        let wider = 1.0 / ratio;
        losses.push(format!(
            "its gap between p99.9 and p50 is {wider:.2} times that of {baseline}"
        ));
    }
    let slower = surely(strategy.p50_ratio, |range| range.low > 1.0);
    if let Some(ratio) = slower.filter(|ratio| *ratio > SLOWER) {
        let more = 100.0 * (ratio - 1.0);
        losses.push(format!(
            "its median is {more:.0} % above that of {baseline}"
        ));
    }
    losses
}
