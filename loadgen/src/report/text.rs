//! A run's report as plain text.

use std::fmt::{self, Display, Formatter};

use super::table::{Table, or_dash, percent};
use super::{Accuracy, Counts, RunReport, Summary};

impl Display for RunReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (settings, lag) = (&self.settings, &self.lag);
        writeln!(out, "{} on {}", settings.model, settings.target)?;
        let (elapsed_s, answered_per_s) = (self.elapsed_s, self.answered_per_s);
        let load = settings.load();
        writeln!(
            out,
            "{load}; {elapsed_s:.1} s, {answered_per_s:.1} answers/s\n{}",
            self.counts
        )?;
        if !self.errors.is_empty() {
            let errors = self.errors.iter();
            let errors: Vec<String> = errors
                .map(|(kind, count)| format!("{kind} {count}"))
                .collect();
            writeln!(out, "errors: {}", errors.join("  "))?;
        }
        writeln!(out, "\n{}", times(self))?;
        if !self.provenance.is_empty() {
            writeln!(out, "{}", answers(self))?;
        }
        let (p50, p99, max, limit) = (lag.p50, lag.p99, lag.max, lag.limit);
        writeln!(
            out,
            "scheduling lag: p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms"
        )?;
        if !self.valid {
            writeln!(
                out,
                "NOT VALID: p99 lag is over {limit:.3} ms, so these figures measure the \
                 generator; lower --rate or free a core"
            )?;
        }
        if self.partial {
            writeln!(out, "PARTIAL: the run was ended before its schedule was")?;
        }
        Ok(())
    }
}

impl Display for Counts {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            planned,
            sent,
            answered,
            failed,
            unanswered,
            unsent,
        } = self;
        write!(
            out,
            "planned {planned}  sent {sent}  answered {answered}  failed {failed}  unanswered \
             {unanswered}  unsent {unsent}"
        )
    }
}

fn times(report: &RunReport) -> Table {
    let mut table = Table::new([
        "time in ms",
        "count",
        "p50",
        "mean",
        "p90",
        "p99",
        "p99.5",
        "p99.9",
        "max",
    ]);
    let mut row = |name: &str, summary: Option<Summary>| {
        if let Some(summary) = summary {
            let times = summary.figures().map(|(_, time)| format!("{time:.3}"));
            table.row(
                name,
                std::iter::once(summary.count.to_string()).chain(times),
            );
        }
    };
    row("latency, answered", report.latency.answered);
    for (provenance, answers) in &report.provenance {
        row(&format!("  {provenance}"), Some(answers.latency));
    }
    row("latency, all that was due", report.latency.all);
    row("service, answered", report.service);
    row("until failure", report.time_to_failure);
    table
}

fn answers(report: &RunReport) -> Table {
    let accuracy = |found: Option<Accuracy>| percent(found.map(|found| found.accuracy));
    let mut table = Table::new(["answers", "count", "share", "accuracy", "confidence"]);
    for (provenance, answers) in &report.provenance {
        let confidence = answers.mean_confidence.map(|mean| format!("{mean:.3}"));
        table.row(
            format!("  {provenance}"),
            [
                answers.count.to_string(),
                percent(Some(answers.share)),
                accuracy(answers.accuracy),
                or_dash(confidence),
            ],
        );
    }
    let all = [
        report.counts.answered.to_string(),
        String::new(),
        accuracy(report.accuracy),
    ];
    table.row("  all", all);
    table
}
