//! The page of a run.

use super::page::{banner, document, escape, facts, figure, ms, or_none, table};
use super::parts::{
    Distribution, SERIES_NOTE, SPECTRUM_NOTE, series_extent, spectrum, time_series,
};
use crate::compare::recording_plots;
use crate::report::table::{or_dash, percent};
use crate::report::{RunReport, Summary};
use crate::run::Recording;

pub fn run_page(report: &RunReport, recording: &Recording) -> String {
    let plots = recording_plots(recording, report.settings.timeout_ms.saturating_mul(1000));
    // Dashed, so that the first is seen where they are the same.
    let (all, answered) = (0, 2);
    let distributions =
        [(all, &plots.all), (answered, &plots.answered)].map(|(series, (samples, points))| {
            Distribution {
                points,
                samples: *samples,
                series,
            }
        });
    let extent = series_extent(std::iter::once(&plots.series));
    let over_time = time_series(&plots.series, &extent, 1, Vec::new(), "latency over time");
    let body = [
        banners(report),
        format!("<p class=\"headline\">{}</p>\n", escape(&headline(report))),
        times(report),
        answers(report),
        figure(
            "Latency by percentile",
            &[(all, "all that was due"), (answered, "answered")],
            &spectrum(&distributions),
            SPECTRUM_NOTE,
        ),
        figure("Latency over time", &[], &over_time, SERIES_NOTE),
        settings(report),
    ];
    document(
        &format!("Load on {}", report.settings.model),
        &body.concat(),
    )
}

fn banners(report: &RunReport) -> String {
    let mut banners = String::new();
    if report.partial {
        banners.push_str(&banner(
            "partial",
            "PARTIAL",
            "the run was ended before its schedule was",
        ));
    }
    if !report.valid {
        let text = format!(
            "the generator's p99 lag is {} ms, over {} ms, so these figures measure the generator",
            ms(report.lag.p99),
            ms(report.lag.limit)
        );
        banners.push_str(&banner("invalid", "NOT VALID", &text));
    }
    banners
}

fn headline(report: &RunReport) -> String {
    let counts = report.counts;
    let time = report.latency.all.map_or_else(String::new, |latency| {
        format!(
            ": p50 {} ms, p99 {} ms, p99.9 {} ms",
            ms(latency.p50),
            ms(latency.p99),
            ms(latency.p99_9)
        )
    });
    format!(
        "{} of {} requests were answered{time}.",
        counts.answered, counts.planned
    )
}

fn times(report: &RunReport) -> String {
    let provenance = report.provenance.iter();
    let provenance = provenance.map(|(name, answers)| (name.to_string(), Some(answers.latency)));
    let named = |name: &str, summary| (name.to_owned(), summary);
    let rows = [
        named("all that was due", report.latency.all),
        named("answered", report.latency.answered),
    ];
    let rows = rows.into_iter().chain(provenance).chain([
        named("service, answered", report.service),
        named("until failure", report.time_to_failure),
    ]);
    let row = |(name, summary): (String, Option<Summary>)| {
        let summary = summary?;
        let times = summary.figures().map(|(_, time)| ms(time));
        Some(
            [name, summary.count.to_string()]
                .into_iter()
                .chain(times)
                .collect(),
        )
    };
    let rows: Vec<Vec<String>> = rows.filter_map(row).collect();
    let header = [
        "ms", "requests", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ];
    format!("<h2>Latency</h2>\n{}", table(&header, &rows))
}

fn answers(report: &RunReport) -> String {
    let provenance = report.provenance.iter();
    let rows = provenance.map(|(provenance, answers)| {
        vec![
            provenance.to_string(),
            answers.count.to_string(),
            percent(Some(answers.share)),
            percent(answers.accuracy.map(|accuracy| accuracy.accuracy)),
            or_dash(answers.mean_confidence.map(|mean| format!("{mean:.3}"))),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header = ["", "answers", "share", "accuracy", "mean confidence"];
    let answers = format!("<h2>Answers</h2>\n{}", table(&header, &rows));
    if report.errors.is_empty() {
        return answers;
    }
    let errors = report.errors.iter();
    let errors = facts(errors.map(|(kind, count)| (kind.as_str(), count.to_string())));
    format!("{answers}<h2>Failures</h2>\n{errors}")
}

fn settings(report: &RunReport) -> String {
    let (settings, lag) = (&report.settings, report.lag);
    let [p50, p99, max] = [lag.p50, lag.p99, lag.max].map(ms);
    let rows = [
        ("target", settings.target.clone()),
        ("load", settings.load()),
        ("timeout", format!("{} ms", settings.timeout_ms)),
        ("tensors", settings.encoding.to_string()),
        ("images", settings.images.clone()),
        ("labels", or_none(settings.labels.clone())),
        ("requests", report.counts.to_string()),
        (
            "scheduling lag",
            format!("p50 {p50} ms, p99 {p99} ms, max {max} ms"),
        ),
    ];
    format!("<h2>Settings</h2>\n{}", facts(rows))
}
