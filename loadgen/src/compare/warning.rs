//! A comparison's main result in a sentence, and what a reader should know before its figures.

use serde::{Deserialize, Serialize};

use super::{CompareReport, Estimate, Interval, StrategyReport};
use crate::report::page::percent;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub kind: WarningKind,
    pub strategy: Option<String>,
    pub text: String,
}

/// Kinds of warnings, the most serious first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    InvalidGenerator,
    /// The generator was late, and what was measured then was measured again.
    Repeated,
    Partial,
    UnequalInstances,
    NoAnswer,
    FewRounds,
    NotQuotable,
    Loses,
}

/// Rounds below which the bootstrap's intervals are too narrow to be trusted.
const FEW_ROUNDS: usize = 8;
/// Median over the baseline's from which a strategy loses.
const SLOWER: f64 = 1.05;

pub(super) fn warnings(report: &CompareReport) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut add = |kind, strategy: Option<&str>, text: String| {
        let strategy = strategy.map(str::to_owned);
        warnings.push(Warning {
            kind,
            strategy,
            text,
        });
    };
    about_all(report, |kind, text| add(kind, None, text));
    for strategy in &report.strategies {
        let name = strategy.name.as_str();
        let mut about = |kind, text| add(kind, Some(name), format!("{name}{text}"));
        measurement(strategy, report.rounds, &mut about);
        for text in losses(strategy, &report.baseline) {
            about(WarningKind::Loses, format!(" loses: {text}"));
        }
    }
    warnings.sort_by_key(|warning| warning.kind);
    warnings
}

fn about_all(report: &CompareReport, mut add: impl FnMut(WarningKind, String)) {
    let (rounds, planned) = (report.rounds, report.settings.blocks);
    if report.partial {
        let text = format!(
            "ended early: {rounds} of {planned} rounds were finished by all strategies, and only \
             these count"
        );
        add(WarningKind::Partial, text);
    }
    if rounds < FEW_ROUNDS {
        let text = format!(
            "{rounds} rounds are few for the bootstrap, whose intervals are then too narrow; run \
             at least {FEW_ROUNDS}"
        );
        add(WarningKind::FewRounds, text);
    }
    let counts = report.strategies.iter().filter_map(|it| it.instances);
    let counts: Vec<usize> = counts.collect();
    if counts.iter().any(|count| *count != counts[0]) {
        let text = format!(
            "the strategies ran on {counts:?} instances, so part of any difference is hardware"
        );
        add(WarningKind::UnequalInstances, text);
    }
}

/// Doubts in how a strategy was measured; each text follows the strategy's name.
fn measurement(
    strategy: &StrategyReport,
    rounds: usize,
    add: &mut impl FnMut(WarningKind, String),
) {
    let (invalid, repeated) = (strategy.invalid_blocks, strategy.repeated_blocks);
    if invalid > 0 {
        let text = format!(
            ": the generator was late in {invalid} of {rounds} blocks, which measure the \
             generator; lower the rate or free a core"
        );
        add(WarningKind::InvalidGenerator, text);
    }
    if repeated > 0 {
        let text = format!(
            ": {repeated} blocks were measured again, since the generator was late in them"
        );
        add(WarningKind::Repeated, text);
    }
    let without = strategy.counts.failed + strategy.counts.unanswered;
    if without > 0 {
        let share = percent(without as f64 / strategy.counts.planned.max(1) as f64);
        let text = format!(
            ": no answer to {without} of the requests ({share}), which count as the timeout or \
             longer"
        );
        add(WarningKind::NoAnswer, text);
    }
    let confidence = strategy.confidence.iter();
    let short = confidence.filter(|(_, confidence)| confidence.needs_samples > 0);
    let shortest = short.max_by_key(|(_, confidence)| confidence.needs_samples);
    if let Some((percentile, confidence)) = shortest {
        let (percentile, needed) = (percentile.replace('_', "."), confidence.needs_samples);
        let text = format!(": {percentile} is not to be quoted before {needed} more requests");
        add(WarningKind::NotQuotable, text);
    }
}

fn losses(strategy: &StrategyReport, baseline: &str) -> Vec<String> {
    let mut losses = Vec::new();
    if strategy.name == baseline {
        return losses;
    }
    let surely = |ratio: Option<Estimate>, worse: fn(Interval) -> bool| {
        let ratio = ratio.filter(|ratio| ratio.interval.is_some_and(worse));
        ratio.map(|ratio| ratio.value)
    };
    if let Some(ratio) = surely(strategy.gap_ratio, |range| range.high < 1.0) {
        let wider = 1.0 / ratio;
        let text = format!("its gap between p99.9 and p50 is {wider:.2} times that of {baseline}");
        losses.push(text);
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

impl CompareReport {
    /// The main result: the strategy with the narrowest gap between p99.9 and p50, how sure that
    /// is, and what it takes.
    pub fn headline(&self) -> String {
        let base = &self.baseline;
        let others = self
            .strategies
            .iter()
            .filter(|strategy| strategy.name != *base);
        let ratios = others.filter_map(|strategy| Some((strategy, strategy.gap_ratio?)));
        let Some((best, ratio)) = ratios.max_by(|one, other| one.1.value.total_cmp(&other.1.value))
        else {
            return format!("{base}: there is no other strategy to compare it with.");
        };
        let (name, value) = (&best.name, ratio.value);
        let better = format!("{name} has a gap between p99.9 and p50 that is {value:.2} times");
        let result = match ratio.interval {
            None => format!("{better} narrower than {base}'s"),
            Some(Interval { low, high }) => {
                let times = format!("narrower (95 % interval {low:.2} to {high:.2})");
                match (low > 1.0, high < 1.0) {
                    (true, _) => format!("{better} {times} than {base}'s"),
                    (_, true) => format!(
                        "No strategy does better than {base}: the gap of the next, {name}, is \
                         {value:.2} times {times}"
                    ),
                    _ => format!(
                        "No strategy can be told from {base}: the gap of the best other one, \
                         {name}, is {value:.2} times {times}"
                    ),
                }
            }
        };
        let base = self.strategy(base);
        let quotable =
            best.is_tail_quotable() && base.is_some_and(StrategyReport::is_tail_quotable);
        let doubt = if quotable {
            ""
        } else {
            "Too few requests to be quoted: "
        };
        let base_median = base.map_or(f64::NAN, |base| base.latency.p50);
        let median = best.latency.p50;
        let extra = best.cost.extra_work.map(|extra| 100.0 * extra);
        let extra = extra.map(|extra| format!(", and it does {extra:.1} % extra work"));
        let extra = extra.unwrap_or_default();
        format!("{doubt}{result}; its median is {median:.2} ms against {base_median:.2} ms{extra}.")
    }
}
