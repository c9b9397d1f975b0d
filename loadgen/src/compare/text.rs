//! A comparison for a terminal.

use std::fmt::{self, Display, Formatter};

use super::{CompareReport, Estimate, StrategyReport};

/// Shows a comparison as aligned plain text.
#[derive(Debug)]
pub struct CompareText<'a>(pub &'a CompareReport);

impl Display for CompareText<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        let settings = &report.settings;
        writeln!(
            out,
            "{}: {} arrivals, {} requests/s, seed {}; {} of {} rounds of {} s",
            settings.model,
            settings.arrivals,
            settings.rate,
            settings.seed,
            report.rounds,
            settings.blocks,
            settings.block_s
        )?;
        report
            .warnings
            .iter()
            .try_for_each(|warning| writeln!(out, "warning: {}", warning.text))?;
        let width = report
            .strategies
            .iter()
            .map(|strategy| strategy.name.chars().count())
            .max();
        let width = width.unwrap_or_default().max(8);
        writeln!(out)?;
        times(out, report, width)?;
        writeln!(out)?;
        relations(out, report, width)?;
        writeln!(out)?;
        answers(out, report, width)?;
        writeln!(
            out,
            "\nintervals: 95 %, block bootstrap, {} draws of {} rounds; * has too few samples to \
                be quoted",
            report.bootstrap.resamples, report.rounds
        )
    }
}

fn times(out: &mut Formatter<'_>, report: &CompareReport, width: usize) -> fmt::Result {
    let columns = [
        "requests", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ];
    write!(out, "{:<width$}", "ms")?;
    columns
        .iter()
        .try_for_each(|column| write!(out, "{column:>10} "))?;
    writeln!(out)?;
    for strategy in &report.strategies {
        let latency = strategy.latency;
        write!(out, "{:<width$}{:>10} ", strategy.name, latency.count)?;
        let columns = [
            (latency.p50, "p50"),
            (latency.mean, ""),
            (latency.p90, "p90"),
            (latency.p99, "p99"),
            (latency.p99_5, "p99_5"),
            (latency.p99_9, "p99_9"),
            (latency.max, ""),
        ];
        for (time, name) in columns {
            let doubtful = strategy
                .confidence
                .get(name)
                .is_some_and(|confidence| !confidence.quotable);
            write!(out, "{time:>10.3}{}", if doubtful { '*' } else { ' ' })?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn relations(out: &mut Formatter<'_>, report: &CompareReport, width: usize) -> fmt::Result {
    let baseline = &report.baseline;
    let header = ["p99.9 - p50, ms", "times narrower", "p50 ratio"];
    write!(out, "{:<width$}", "95 %")?;
    header
        .iter()
        .try_for_each(|column| write!(out, "{column:>28}"))?;
    writeln!(out, "   against {baseline}")?;
    for StrategyReport {
        name,
        gap_ms,
        gap_ratio,
        p50_ratio,
        ..
    } in &report.strategies
    {
        write!(out, "{name:<width$}{:>28}", estimate(Some(*gap_ms)))?;
        writeln!(
            out,
            "{:>28}{:>28}",
            estimate(*gap_ratio),
            estimate(*p50_ratio)
        )?;
    }
    Ok(())
}

fn answers(out: &mut Formatter<'_>, report: &CompareReport, width: usize) -> fmt::Result {
    use crate::target::Provenance::Reconstructed;
    let columns = [
        "no answer",
        "reconstr.",
        "accuracy",
        "of reconstr.",
        "extra work",
        "wasted",
        "unrecoverable",
        "instances",
    ];
    write!(out, "{:<width$}", "")?;
    columns
        .iter()
        .try_for_each(|column| write!(out, "{column:>14}"))?;
    writeln!(out)?;
    for strategy in &report.strategies {
        let counts = strategy.counts;
        let without = (counts.failed + counts.unanswered) as f64 / counts.sent.max(1) as f64;
        let reconstructed = strategy.provenance.get(&Reconstructed);
        let columns = [
            Some(without),
            Some(reconstructed.map_or(0.0, |answers| answers.share)),
            strategy.accuracy.map(|accuracy| accuracy.accuracy),
            reconstructed.and_then(|answers| Some(answers.accuracy?.accuracy)),
            strategy.cost.extra_work,
            strategy.cost.wasted_work,
            strategy.cost.unrecoverable,
        ];
        write!(out, "{:<width$}", strategy.name)?;
        columns
            .iter()
            .try_for_each(|share| write!(out, "{:>14}", percent(*share)))?;
        writeln!(out, "{:>14}", or_dash(strategy.instances))?;
    }
    Ok(())
}

/// A count, or a dash.
pub(crate) fn or_dash(count: Option<impl Display>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

/// A share in percent, or a dash.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share.map(|share| 100.0 * share) {
        None => "-".to_owned(),
        Some(small) if small > 0.0 && small < 0.1 => format!("{small:.3} %"),
        Some(percent) => format!("{percent:.2} %"),
    }
}

/// An estimate with its interval, or a dash.
pub(crate) fn estimate(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(Estimate {
            value,
            interval: None,
        }) => format!("{value:.2}"),
        Some(Estimate {
            value,
            interval: Some(range),
        }) => {
            format!("{value:.2} ({:.2} to {:.2})", range.low, range.high)
        }
    }
}
