//! The page of a comparison.

use super::page::{self, banner, document, escape, facts, figure, ms, swatch, table};
use super::parts::{
    Distribution, SERIES_NOTE, SPECTRUM_NOTE, series_extent, spectrum, time_series,
};
use super::plot::{Axis, Layer, Mark, Plot};
use crate::compare::{CompareReport, Estimate, Interval, StrategyReport, WarningKind};
use crate::report::table::{or_dash, percent};
use crate::target::Provenance;

/// Most strategies with a plot over time of their own.
const MAX_PANELS: usize = 12;

pub fn compare_page(report: &CompareReport) -> String {
    let body = [
        banners(report),
        format!("<p class=\"headline\">{}</p>\n", escape(&report.headline())),
        warnings(report),
        times(report),
        answers(report),
        spectra(report),
        over_time(report),
        against_tail(
            report,
            "Cost against p99.9",
            cost,
            "redundant requests for each accepted one, %",
            true,
        ),
        against_tail(
            report,
            "Accuracy against p99.9",
            accuracy,
            "accuracy over all answers, %",
            false,
        ),
        settings(report),
    ];
    document(
        &format!("Strategies compared: {}", report.settings.model),
        &body.concat(),
    )
}

fn banners(report: &CompareReport) -> String {
    let with = |kind| report.warnings.iter().find(|warning| warning.kind == kind);
    let mut banners = String::new();
    if report.partial {
        let text = with(WarningKind::Partial).map_or("ended early", |warning| &warning.text);
        banners.push_str(&banner("partial", "PARTIAL", text));
    }
    if !report.valid {
        let text = "the generator did not keep its schedule, so some of these figures measure \
                    the generator";
        banners.push_str(&banner("invalid", "NOT VALID", text));
    }
    banners
}

fn warnings(report: &CompareReport) -> String {
    // The banner has the other.
    let warnings = report
        .warnings
        .iter()
        .filter(|warning| warning.kind != WarningKind::Partial);
    page::warnings(warnings.map(|warning| warning.text.as_str()))
}

fn times(report: &CompareReport) -> String {
    let row = |(place, strategy): (usize, &StrategyReport)| {
        let time = |(name, time): (&str, f64)| match strategy.confidence.get(name) {
            Some(confidence) if !confidence.quotable => {
                let needed = confidence.needs_samples;
                format!("{}*<small>+ {needed} requests</small>", ms(time))
            }
            Some(confidence) => ranged(time, "", confidence.bootstrap),
            None => ms(time),
        };
        let head = [
            swatch(place, &strategy.name),
            strategy.latency.count.to_string(),
        ];
        let figures = strategy.latency.figures().into_iter();
        let times = figures.filter(|(name, _)| *name != "p90").map(time);
        let relations = [
            estimate(Some(strategy.gap_ms)),
            estimate(strategy.gap_ratio),
            estimate(strategy.p50_ratio),
        ];
        head.into_iter().chain(times).chain(relations).collect()
    };
    let rows: Vec<Vec<String>> = report.strategies.iter().enumerate().map(row).collect();
    let baseline = escape(&report.baseline);
    let narrower = format!("gap:<br>{baseline}<br>/ this");
    let median = format!("p50: this /<br>{baseline}");
    let gap = "gap<br>p99.9 - p50";
    let header = [
        "latency, ms",
        "requests",
        "p50",
        "mean",
        "p99",
        "p99.5",
        "p99.9",
        "max",
        gap,
        &narrower,
        &median,
    ];
    format!(
        "<h2>Latency</h2>\n{}<p class=\"note\">From the planned send, over all requests that were \
         due; one without an answer counts as the timeout or longer. Small: 95 % intervals by the \
         block bootstrap. * has too few samples to be quoted; below it, how many more it \
         takes.</p>\n",
        table(&header, &rows)
    )
}

fn answers(report: &CompareReport) -> String {
    let row = |(place, strategy): (usize, &StrategyReport)| {
        let of = |provenance| strategy.provenance.get(&provenance);
        let right = |provenance| Some(of(provenance)?.accuracy?.accuracy);
        vec![
            swatch(place, &strategy.name),
            or_dash(strategy.instances),
            percent(Some(strategy.counts.without_answer())),
            percent(strategy.accuracy.map(|accuracy| accuracy.accuracy)),
            percent(right(Provenance::Exact)),
            percent(right(Provenance::Reconstructed)),
            percent(Some(
                of(Provenance::Reconstructed).map_or(0.0, |answers| answers.share),
            )),
            percent(strategy.cost.extra_work),
            percent(strategy.cost.wasted_work),
            or_dash(strategy.cost.redundancy.map(|counts| counts.unrecoverable)),
        ]
    };
    let rows: Vec<Vec<String>> = report.strategies.iter().enumerate().map(row).collect();
    let header = [
        "",
        "instances",
        "no answer",
        "accuracy",
        "of exact",
        "of recon-<br>structed",
        "recon-<br>structed",
        "extra<br>work",
        "wasted<br>work",
        "unrecoverable<br>groups",
    ];
    let strategies = report.strategies.iter();
    let described =
        strategies.map(|strategy| (strategy.name.as_str(), strategy.description.clone()));
    format!(
        "<h2>Answers and cost</h2>\n{}{}",
        table(&header, &rows),
        facts(described)
    )
}

fn legend(report: &CompareReport) -> Vec<(usize, &str)> {
    report
        .strategies
        .iter()
        .enumerate()
        .map(|(place, strategy)| (place, strategy.name.as_str()))
        .collect()
}

fn spectra(report: &CompareReport) -> String {
    let strategies = report.strategies.iter().enumerate();
    let distributions: Vec<Distribution<'_>> = strategies
        .map(|(series, strategy)| Distribution {
            points: &strategy.spectrum,
            samples: strategy.latency.count,
            series,
        })
        .collect();
    figure(
        "Latency by percentile",
        &legend(report),
        &spectrum(&distributions),
        SPECTRUM_NOTE,
    )
}

fn over_time(report: &CompareReport) -> String {
    let extent = series_extent(report.strategies.iter().map(|strategy| &strategy.series));
    let panel = |(place, strategy): (usize, &StrategyReport)| {
        let hit = |name: &Option<String>| name.as_ref().is_none_or(|name| *name == strategy.name);
        let marks = report
            .faults
            .iter()
            .filter(|fault| hit(&fault.strategy))
            .map(|fault| Mark {
                from: fault.at_s,
                until: fault.until_s,
                label: format!("{} {}", fault.instance, fault.what),
            });
        let name = format!("latency of {} over time", strategy.name);
        let plot = time_series(&strategy.series, &extent, place, marks.collect(), &name);
        format!("<h3>{}</h3>\n{plot}", swatch(place, &strategy.name))
    };
    let panels: String = report
        .strategies
        .iter()
        .enumerate()
        .take(MAX_PANELS)
        .map(panel)
        .collect();
    figure(
        "Latency over time",
        &[],
        &panels,
        &format!("{SERIES_NOTE} Faults that were injected are marked in orange."),
    )
}

fn cost(strategy: &StrategyReport) -> Option<f64> {
    strategy.cost.extra_work
}

fn accuracy(strategy: &StrategyReport) -> Option<f64> {
    strategy.accuracy.map(|accuracy| accuracy.accuracy)
}

/// A point for each strategy that has `share`; nothing if none has.
fn against_tail(
    report: &CompareReport,
    title: &str,
    share: impl Fn(&StrategyReport) -> Option<f64>,
    label: &str,
    from_zero: bool,
) -> String {
    let strategies = report.strategies.iter().enumerate();
    let points: Vec<(usize, f64, &StrategyReport)> = strategies
        .filter_map(|(place, strategy)| Some((place, 100.0 * share(strategy)?, strategy)))
        .collect();
    if points.is_empty() {
        return String::new();
    }
    let tail = |strategy: &StrategyReport| {
        let value = strategy.latency.p99_9;
        let interval = strategy
            .confidence
            .get("p99_9")
            .and_then(|found| found.bootstrap);
        (value, interval)
    };
    let heights = points.iter().flat_map(|(.., strategy)| {
        let (value, interval) = tail(strategy);
        [
            Some(value),
            interval.map(|range| range.low),
            interval.map(|range| range.high),
        ]
    });
    let x = Axis::linear(label, points.iter().map(|point| point.1), from_zero);
    let mut plot = Plot::new(x, "p99.9 of latency, ms", heights.flatten().collect());
    for (series, x, strategy) in points {
        let (value, interval) = tail(strategy);
        if let Some(Interval { low, high }) = interval {
            plot.layers.push(Layer::Whisker {
                x,
                low,
                high,
                series,
            });
        }
        plot.layers.push(Layer::Dots {
            points: vec![(x, value)],
            series,
            radius: 6,
        });
    }
    figure(
        title,
        &legend(report),
        &plot.html(title),
        "Bars are 95 % intervals by the block bootstrap.",
    )
}

fn settings(report: &CompareReport) -> String {
    let (settings, bootstrap) = (&report.settings, report.bootstrap);
    let (rounds, blocks, block_s) = (report.rounds, settings.blocks, settings.block_s);
    let deadline = settings
        .deadline_ms
        .map(|deadline| format!("{deadline} ms"));
    let rows = [
        ("model", settings.model.clone()),
        ("load", settings.load()),
        (
            "rounds",
            format!("{rounds} of {blocks}, {block_s} s for each strategy"),
        ),
        ("timeout", format!("{} ms", settings.timeout_ms)),
        ("deadline", page::or_none(deadline)),
        ("tensors", settings.encoding.to_string()),
        ("images", settings.images.clone()),
        ("labels", page::or_none(settings.labels.clone())),
        (
            "bootstrap",
            format!(
                "{} draws of rounds, seed {}",
                bootstrap.resamples, bootstrap.seed
            ),
        ),
    ];
    let notes = settings
        .notes
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    format!(
        "<h2>Settings</h2>\n{}",
        facts(rows.into_iter().chain(notes))
    )
}

/// A time, a mark behind it, and its interval below.
pub(super) fn ranged(value: f64, mark: &str, interval: Option<Interval>) -> String {
    let range = interval
        .map(|Interval { low, high }| format!("<small>{} to {}</small>", ms(low), ms(high)));
    format!("{}{mark}{}", ms(value), range.unwrap_or_default())
}

pub(super) fn estimate(estimate: Option<Estimate>) -> String {
    or_dash(estimate.map(|estimate| ranged(estimate.value, "", estimate.interval)))
}
