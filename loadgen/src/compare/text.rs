//! A comparison as plain text.

use std::fmt::{self, Display, Formatter};
use std::iter::once;

use super::{CompareReport, Estimate, SweepPoint, SweepReport};
use crate::report::table::{Table, or_dash, percent};
use crate::target::Provenance::Reconstructed;

impl Display for CompareReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (settings, rounds) = (&self.settings, self.rounds);
        let (blocks, block_s) = (settings.blocks, settings.block_s);
        let (model, load) = (&settings.model, settings.load());
        writeln!(
            out,
            "{model}: {load}; {rounds} of {blocks} rounds of {block_s} s"
        )?;
        for warning in &self.warnings {
            writeln!(out, "warning: {}", warning.text)?;
        }
        writeln!(
            out,
            "\n{}\n{}\n{}",
            times(self),
            relations(self),
            answers(self)
        )?;
        let draws = self.bootstrap.resamples;
        writeln!(
            out,
            "intervals: 95 %, block bootstrap, {draws} draws of {rounds} rounds; * has too few \
             samples to be quoted"
        )
    }
}

fn times(report: &CompareReport) -> Table {
    let mut table = Table::new([
        "ms", "requests", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ]);
    for strategy in &report.strategies {
        let times = strategy.latency.figures().map(|(name, time)| {
            let confidence = strategy.confidence.get(name);
            let quotable = confidence.is_none_or(|confidence| confidence.quotable);
            format!("{time:.3}{}", if quotable { ' ' } else { '*' })
        });
        let requests = strategy.latency.count.to_string();
        table.row(&strategy.name, once(requests).chain(times));
    }
    table
}

fn relations(report: &CompareReport) -> Table {
    let against = format!("times narrower, against {}", report.baseline);
    let mut table = Table::new(["95 %", "p99.9 - p50, ms", &against, "p50 ratio"]);
    for strategy in &report.strategies {
        let figures = [
            Some(strategy.gap_ms),
            strategy.gap_ratio,
            strategy.p50_ratio,
        ];
        table.row(&strategy.name, figures.map(or_dash));
    }
    table
}

fn answers(report: &CompareReport) -> Table {
    let mut table = Table::new([
        "",
        "no answer",
        "reconstr.",
        "accuracy",
        "of reconstr.",
        "extra work",
        "wasted",
        "unrecoverable",
        "instances",
    ]);
    for strategy in &report.strategies {
        let reconstructed = strategy.provenance.get(&Reconstructed);
        let shares = [
            Some(strategy.counts.without_answer()),
            Some(reconstructed.map_or(0.0, |answers| answers.share)),
            strategy.accuracy.map(|accuracy| accuracy.accuracy),
            reconstructed.and_then(|answers| Some(answers.accuracy?.accuracy)),
            strategy.cost.extra_work,
            strategy.cost.wasted_work,
            strategy.cost.unrecoverable,
        ];
        let instances = or_dash(strategy.instances);
        table.row(
            &strategy.name,
            shares.map(percent).into_iter().chain([instances]),
        );
    }
    table
}

impl Display for Estimate {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2}", self.value)?;
        self.interval.map_or(Ok(()), |range| {
            write!(out, " ({:.2} to {:.2})", range.low, range.high)
        })
    }
}

impl Display for SweepReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for point in &self.points {
            let axes = point.axes.iter();
            let axes: Vec<String> = axes
                .map(|(axis, value)| format!("{axis} {value}"))
                .collect();
            let axes = axes.join(", ");
            writeln!(out, "{axes}: {}\n{}", verdict(point), rows(point))?;
        }
        for knee in &self.knees {
            let axes = knee.axes.iter();
            let axes: String = axes
                .map(|(axis, value)| format!(", {axis} {value}"))
                .collect();
            let rate = knee.rate.map(|rate| format!("{rate}/s"));
            let at = rate.unwrap_or_else(|| "beyond the highest rate".to_owned());
            writeln!(out, "knee of {}{axes}: {at}", knee.strategy)?;
        }
        Ok(())
    }
}

fn verdict(point: &SweepPoint) -> String {
    match point.winner() {
        Some(winner) => format!("{winner} wins"),
        None if point.best.is_empty() => "too few queries to tell".to_owned(),
        None => format!("a tie of {}", point.best.join(", ")),
    }
}

fn rows(point: &SweepPoint) -> Table {
    let mut table = Table::new(["ms", "p50", "p99", "p99.9", "times narrower", "extra work"]);
    for row in &point.rows {
        let times = [row.p50, row.p99, row.p99_9.value].map(|time| format!("{time:.2}"));
        let ratio = row.gap_ratio.map(|ratio| format!("{:.2}", ratio.value));
        let others = [or_dash(ratio), percent(row.extra_work)];
        table.row(&row.name, times.into_iter().chain(others));
    }
    table
}
