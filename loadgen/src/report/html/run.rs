//! The page of a run.

use super::page::{banner, document, escape, facts, figure, ms, table};
use super::parts::{
    Distribution, SERIES_NOTE, SPECTRUM_NOTE, series_extent, spectrum, time_series,
};
use crate::compare::recording_plots;
use crate::report::{RunReport, Summary};
use crate::run::Recording;

/// A run as an HTML document.
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
    let row = |name: &str, summary: Option<Summary>| {
        let Summary {
            count,
            mean,
            p50,
            p90,
            p99,
            p99_5,
            p99_9,
            max,
        } = summary?;
        let times = [p50, mean, p90, p99, p99_5, p99_9, max].map(ms);
        Some(
            [name.to_owned(), count.to_string()]
                .into_iter()
                .chain(times)
                .collect::<Vec<String>>(),
        )
    };
    let provenance = report.provenance.iter();
    let provenance = provenance
        .map(|(provenance, answers)| row(&format!("{provenance}"), Some(answers.latency)));
    let rows = [
        row("all that was due", report.latency.all),
        row("answered", report.latency.answered),
    ]
    .into_iter()
    .chain(provenance)
    .chain([
        row("service, answered", report.service),
        row("until failure", report.time_to_failure),
    ]);
    let header = [
        "ms", "requests", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ];
    format!(
        "<h2>Latency</h2>\n{}",
        table(&header, &rows.flatten().collect::<Vec<_>>())
    )
}

fn answers(report: &RunReport) -> String {
    let percent = crate::compare::percent;
    let rows: Vec<Vec<String>> = report
        .provenance
        .iter()
        .map(|(provenance, answers)| {
            vec![
                provenance.to_string(),
                answers.count.to_string(),
                percent(Some(answers.share)),
                percent(answers.accuracy.map(|accuracy| accuracy.accuracy)),
                answers
                    .mean_confidence
                    .map_or_else(|| "-".to_owned(), |mean| format!("{mean:.3}")),
            ]
        })
        .collect();
    let errors: Vec<(String, String)> = report
        .errors
        .iter()
        .map(|(kind, count)| (kind.clone(), count.to_string()))
        .collect();
    let errors = if errors.is_empty() {
        String::new()
    } else {
        format!("<h2>Failures</h2>\n{}", facts(&errors))
    };
    let header = ["", "answers", "share", "accuracy", "mean confidence"];
    format!("<h2>Answers</h2>\n{}{errors}", table(&header, &rows))
}

fn settings(report: &RunReport) -> String {
    let (settings, counts, lag) = (&report.settings, report.counts, report.lag);
    let rows = [
        ("target", settings.target.clone()),
        ("load", settings.load()),
        ("timeout", format!("{} ms", settings.timeout_ms)),
        ("tensors", settings.encoding.to_string()),
        ("images", settings.images.clone()),
        (
            "labels",
            settings.labels.clone().unwrap_or_else(|| "none".to_owned()),
        ),
        (
            "requests",
            format!(
                "planned {}, sent {}, answered {}, failed {}, unanswered {}, unsent {}",
                counts.planned,
                counts.sent,
                counts.answered,
                counts.failed,
                counts.unanswered,
                counts.unsent
            ),
        ),
        (
            "scheduling lag",
            format!(
                "p50 {} ms, p99 {} ms, max {} ms",
                ms(lag.p50),
                ms(lag.p99),
                ms(lag.max)
            ),
        ),
    ];
    let rows: Vec<(String, String)> = rows
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    format!("<h2>Settings</h2>\n{}", facts(&rows))
}
