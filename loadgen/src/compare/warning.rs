//! A comparison's main result in a sentence, and what a reader should know before its figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CompareReport, Estimate, Interval, StrategyReport};
use crate::report::page::percent;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    pub kind: WarningKind,
    pub strategy: Option<String>,
    pub text: String,
}

/// Kinds of warnings, the most serious first.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

type Said = Vec<(WarningKind, String)>;

pub(super) fn warnings(report: &CompareReport) -> Vec<Warning> {
    let about = |strategy: Option<&String>, said: Said| {
        let strategy = strategy.cloned();
        said.into_iter().map(move |(kind, text)| Warning { kind, strategy: strategy.clone(), text })
    };
    let mut warnings: Vec<Warning> = about(None, about_all(report)).collect();
    for strategy in &report.strategies {
        let name = Some(&strategy.name);
        warnings.extend(about(name, doubts(strategy, report.rounds)));
        warnings.extend(about(name, losses(strategy, &report.baseline)));
    }
    warnings.sort_by_key(|warning| warning.kind);
    warnings
}

fn about_all(report: &CompareReport) -> Said {
    let mut said = Vec::new();
    let (rounds, planned) = (report.rounds, report.settings.blocks);
    if report.partial {
        let text = format!(
            "ended early: {rounds} of {planned} rounds were finished by all strategies, and only \
             these count"
        );
        said.push((WarningKind::Partial, text));
    }
    if rounds < FEW_ROUNDS {
        let text = format!(
            "{rounds} rounds are few for the bootstrap, whose intervals are then too narrow; run \
             at least {FEW_ROUNDS}"
        );
        said.push((WarningKind::FewRounds, text));
    }
    let counts: Vec<usize> = report.strategies.iter().filter_map(|it| it.instances).collect();
    if counts.iter().any(|count| *count != counts[0]) {
        let text = format!(
            "the strategies ran on {counts:?} instances, so part of any difference is hardware"
        );
        said.push((WarningKind::UnequalInstances, text));
    }
    said
}

fn doubts(strategy: &StrategyReport, rounds: usize) -> Said {
    let (mut said, name) = (Vec::new(), &strategy.name);
    let (invalid, repeated) = (strategy.invalid_blocks, strategy.repeated_blocks);
    if invalid > 0 {
        let text = format!(
            "{name}: the generator was late in {invalid} of {rounds} blocks, which measure the \
             generator; lower the rate or free a core"
        );
        said.push((WarningKind::InvalidGenerator, text));
    }
    if repeated > 0 {
        let text = format!(
            "{name}: {repeated} blocks were measured again, since the generator was late in them"
        );
        said.push((WarningKind::Repeated, text));
    }
    let without = strategy.counts.failed + strategy.counts.unanswered;
    if without > 0 {
        let share = percent(without as f64 / strategy.counts.planned.max(1) as f64);
        let text = format!(
            "{name}: no answer to {without} of the requests ({share}), which count as the timeout \
             or longer"
        );
        said.push((WarningKind::NoAnswer, text));
    }
    let confidence = strategy.confidence.iter();
    let shortest = confidence.max_by_key(|(_, confidence)| confidence.needs_samples);
    if let Some((percentile, confidence)) = shortest
        && confidence.needs_samples > 0
    {
        let (percentile, needed) = (percentile.replace('_', "."), confidence.needs_samples);
        let text =
            format!("{name}: {percentile} is not to be quoted before {needed} more requests");
        said.push((WarningKind::NotQuotable, text));
    }
    said
}

fn losses(strategy: &StrategyReport, baseline: &str) -> Said {
    let surely = |ratio: Option<Estimate>, worse: fn(Interval) -> bool| {
        ratio.filter(|ratio| strategy.name != baseline && ratio.interval.is_some_and(worse))
    };
    let (mut said, name) = (Vec::new(), &strategy.name);
    if let Some(ratio) = surely(strategy.gap_ratio, |range| range.high < 1.0) {
        let wider = 1.0 / ratio.value;
        said.push(format!(
            "{name} loses: its gap between p99.9 and p50 is {wider:.2} times that of {baseline}"
        ));
    }
    let slower = surely(strategy.p50_ratio, |range| range.low > 1.0);
    if let Some(ratio) = slower.filter(|ratio| ratio.value > SLOWER) {
        let more = 100.0 * (ratio.value - 1.0);
        said.push(format!("{name} loses: its median is {more:.0} % above that of {baseline}"));
    }
    said.into_iter().map(|text| (WarningKind::Loses, text)).collect()
}

impl CompareReport {
    /// The main result: the strategy with the narrowest gap between p99.9 and p50, how sure that
    /// is, and what it takes.
    pub fn headline(&self) -> String {
        let base = &self.baseline;
        let others = self.strategies.iter().filter(|it| it.name != *base);
        let ratios = others.filter_map(|strategy| Some((strategy, strategy.gap_ratio?)));
        let best = ratios.max_by(|one, other| one.1.value.total_cmp(&other.1.value));
        let (Some((best, ratio)), Some(of_base)) = (best, self.strategy(base)) else {
            return format!("{base}: there is no other strategy to compare it with.");
        };
        let doubt = match best.is_tail_quotable() && of_base.is_tail_quotable() {
            true => "",
            false => "Too few requests to be quoted: ",
        };
        let range = ratio.interval.map(|Interval { low, high }| {
            let surely = if low > 1.0 { "" } else { ", so it may not be" };
            format!(" (95 % interval {low:.2} to {high:.2}{surely})")
        });
        let extra = best.cost.extra_work.map(|extra| 100.0 * extra);
        let extra = extra.map(|extra| format!(", and it does {extra:.1} % extra work"));
        let (range, extra) = (range.unwrap_or_default(), extra.unwrap_or_default());
        let (name, value, median) = (&best.name, ratio.value, best.latency.p50);
        let base_median = of_base.latency.p50;
        format!(
            "{doubt}{name} has a gap between p99.9 and p50 that is {value:.2} times narrower than \
             {base}'s{range}; its median is {median:.2} ms against {base_median:.2} ms{extra}."
        )
    }
}
