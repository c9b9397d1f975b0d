//! A report for people.

use std::fmt::{self, Display, Formatter};

use super::{Accuracy, RunReport, Summary};

/// Shows a report as aligned plain text.
#[derive(Debug)]
pub struct Text<'a>(pub &'a RunReport);

impl Display for Text<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        let (settings, counts) = (&report.settings, &report.counts);
        writeln!(out, "{} on {}", settings.model, settings.target)?;
        writeln!(
            out,
            "{}; {:.1} s, {:.1} answers/s",
            settings.load(),
            report.elapsed_s,
            report.answered_per_s
        )?;
        writeln!(
            out,
            "planned {}  sent {}  answered {}  failed {}  unanswered {}  unsent {}",
            counts.planned,
            counts.sent,
            counts.answered,
            counts.failed,
            counts.unanswered,
            counts.unsent
        )?;
        if !report.errors.is_empty() {
            let errors: Vec<String> = report
                .errors
                .iter()
                .map(|(kind, count)| format!("{kind} {count}"))
                .collect();
            writeln!(out, "errors: {}", errors.join("  "))?;
        }
        writeln!(out)?;
        times(out, report)?;
        writeln!(out)?;
        answers(out, report)?;
        verdict(out, report)
    }
}

fn times(out: &mut Formatter<'_>, report: &RunReport) -> fmt::Result {
    let columns = [
        "count", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ];
    write!(out, "{:<26}", "time in ms")?;
    columns
        .iter()
        .try_for_each(|column| write!(out, "{column:>10}"))?;
    writeln!(out)?;
    line(out, "latency, answered", report.latency.answered)?;
    for (provenance, answers) in &report.provenance {
        line(out, &format!("  {provenance}"), Some(answers.latency))?;
    }
    line(out, "latency, all that was due", report.latency.all)?;
    line(out, "service, answered", report.service)?;
    line(out, "until failure", report.time_to_failure)
}

fn line(out: &mut Formatter<'_>, name: &str, summary: Option<Summary>) -> fmt::Result {
    let Some(Summary {
        count,
        mean,
        p50,
        p90,
        p99,
        p99_5,
        p99_9,
        max,
    }) = summary
    else {
        return Ok(());
    };
    write!(out, "{name:<26}{count:>10}")?;
    [p50, mean, p90, p99, p99_5, p99_9, max]
        .iter()
        .try_for_each(|time| write!(out, "{time:>10.3}"))?;
    writeln!(out)
}

fn answers(out: &mut Formatter<'_>, report: &RunReport) -> fmt::Result {
    if report.provenance.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{:<26}{:>10}{:>10}{:>12}{:>12}",
        "answers", "count", "share", "accuracy", "confidence"
    )?;
    let accuracy = |accuracy: Option<Accuracy>| {
        accuracy.map_or("-".to_owned(), |figures| {
            format!("{:.2} %", 100.0 * figures.accuracy)
        })
    };
    for (provenance, answers) in &report.provenance {
        let share = format!("{:.2} %", 100.0 * answers.share);
        let confidence = answers
            .mean_confidence
            .map_or("-".to_owned(), |mean| format!("{mean:.3}"));
        let correct = accuracy(answers.accuracy);
        writeln!(
            out,
            "  {provenance:<24}{:>10}{share:>10}{correct:>12}{confidence:>12}",
            answers.count
        )?;
    }
    let (count, correct) = (report.counts.answered, accuracy(report.accuracy));
    writeln!(out, "  {:<24}{count:>10}{:>10}{correct:>12}\n", "all", "")
}

fn verdict(out: &mut Formatter<'_>, report: &RunReport) -> fmt::Result {
    let lag = &report.lag;
    writeln!(
        out,
        "scheduling lag: p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
        lag.p50, lag.p99, lag.max
    )?;
    if !report.valid {
        writeln!(
            out,
            "NOT VALID: p99 lag is over {:.3} ms, so these figures measure the generator; lower \
                --rate or free a core",
            lag.limit
        )?;
    }
    if report.partial {
        writeln!(out, "PARTIAL: the run was ended before its schedule was")?;
    }
    Ok(())
}
