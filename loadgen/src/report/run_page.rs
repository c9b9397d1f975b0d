//! A run as text and as a page, and the plots that its page shares with comparisons'.

use std::fmt::{self, Display, Formatter};

use super::page::{Cell, Page, Table, ms};
use super::plot::{Axis, Plot, Shape};
use super::{RunReport, Summary, charged_us};
use crate::compare::{Bin, Series, SpectrumPoint, recording_series, samples_needed, spectrum_of};
use crate::run::{Record, Recording};

pub(super) const SPECTRUM_NOTE: &str = "A share of the requests, on the horizontal axis, was \
    answered within the time on the vertical one. A line is faint where it rests on too few \
    requests for the percentile to be quoted.";
pub(super) const SERIES_NOTE: &str = "By the time at which requests were due: the median as a \
    thick line, the 99th percentile as a thin one, the slowest request as a dot.";

pub fn run_page(report: &RunReport, recording: &Recording) -> String {
    let mut page = summary(report);
    let timeout_us = report.settings.timeout_ms.saturating_mul(1000);
    let records = recording.records.iter();
    let charged = |record: &Record| charged_us(record, timeout_us, recording);
    let all = records.clone().filter_map(charged).collect();
    let answers = records.filter(|record| record.answer().is_some());
    let answered = answers.filter_map(Record::latency_us).collect();
    let [(all, all_points), (answered, points)] = [all, answered].map(spectrum_of);
    // The second is dashed, so that the first is seen where they are the same.
    let plot = spectrum(&[(0, all, &all_points[..]), (2, answered, &points[..])]);
    let legend = [(0, "all that was due"), (2, "answered")];
    page.figure("Latency by percentile", &legend, &plot, SPECTRUM_NOTE);
    let series = recording_series(recording, timeout_us);
    let extent = series_extent(std::iter::once(&series));
    let over_time = time_series(&series, &extent, 1, Vec::new(), "latency over time");
    page.figure("Latency over time", &[], &over_time, SERIES_NOTE);
    settings(&mut page, report);
    page.html()
}

impl Display for RunReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut page = summary(self);
        settings(&mut page, self);
        page.fmt(out)
    }
}

fn summary(report: &RunReport) -> Page {
    let (counts, lag) = (report.counts, report.lag);
    let mut page = Page::new(format!("Load on {}", report.settings.model));
    if report.partial {
        page.banner("PARTIAL", "the run was ended before its schedule was");
    }
    if !report.valid {
        let (p99, limit) = (ms(lag.p99), ms(lag.limit));
        let late = format!(
            "the generator's p99 lag is {p99} ms, over {limit} ms, so these figures measure the \
             generator; lower --rate or free a core"
        );
        page.banner("NOT VALID", &late);
    }
    let times = report.latency.all.map(|latency| {
        let [p50, p99, p99_9] = [latency.p50, latency.p99, latency.p99_9].map(ms);
        format!(": p50 {p50} ms, p99 {p99} ms, p99.9 {p99_9} ms")
    });
    let (answered, planned, times) = (counts.answered, counts.planned, times.unwrap_or_default());
    page.headline(&format!("{answered} of {planned} requests were answered{times}."));
    page.table("Latency", &latencies(report), "");
    let mut answers = Table::new(["", "answers", "share", "accuracy", "mean confidence"]);
    for (provenance, of_kind) in &report.provenance {
        let cells = [
            Cell::count(of_kind.count),
            Cell::percent(Some(of_kind.share)),
            Cell::percent(of_kind.accuracy.map(|accuracy| accuracy.accuracy)),
            Cell::or_dash(of_kind.mean_confidence.map(|mean| format!("{mean:.3}"))),
        ];
        answers.row(provenance.to_string(), cells);
    }
    page.table("Answers", &answers, "");
    page.facts("Failures", report.errors.iter().map(|(kind, count)| (kind, count.to_string())));
    page
}

fn latencies(report: &RunReport) -> Table {
    let mut table = Table::new(["ms", "requests"].into_iter().chain(Summary::NAMES));
    let mut row = |name: String, summary: Option<Summary>| {
        if let Some(summary) = summary {
            let times = summary.figures().map(|(_, time)| Cell::from(ms(time)));
            table.row(name, std::iter::once(Cell::count(summary.count)).chain(times));
        }
    };
    row("all that was due".to_owned(), report.latency.all);
    row("answered".to_owned(), report.latency.answered);
    for (provenance, answers) in &report.provenance {
        row(provenance.to_string(), Some(answers.latency));
    }
    row("service, answered".to_owned(), report.service);
    row("until failure".to_owned(), report.time_to_failure);
    table
}

fn settings(page: &mut Page, report: &RunReport) {
    page.fields("Settings", &report.settings);
    page.fields("Requests", &report.counts);
    let (elapsed_s, answered_per_s) = (report.elapsed_s, report.answered_per_s);
    page.facts("Time", [("elapsed", format!("{elapsed_s:.1} s, {answered_per_s:.1} answers/s"))]);
    page.fields("Scheduling lag, ms", &report.lag);
}

/// Plot of distributions, each with its colour's series and its number of samples.
pub(super) fn spectrum(distributions: &[(usize, u64, &[SpectrumPoint])]) -> String {
    let points = distributions.iter().flat_map(|(.., points)| *points);
    let heights = points.map(|point| point.ms).collect();
    let samples = distributions.iter().map(|(_, samples, _)| *samples).max();
    let mut plot = Plot::new(Axis::Percentiles(samples.unwrap_or(1)), heights);
    for (series, samples, points) in distributions {
        let place = |point: &SpectrumPoint| {
            let rarity = (1.0 / (1.0 - point.quantile)).min(*samples as f64);
            (rarity, point.ms)
        };
        let quotable = |point: &&SpectrumPoint| {
            point.quantile < 0.5 || samples_needed(point.quantile) <= *samples
        };
        let sure = points.iter().take_while(quotable).count();
        // The faint line begins at the last sure point, so that there is no gap.
        for (points, opacity) in [(&points[..sure], 1.0), (&points[sure.saturating_sub(1)..], 0.4)]
        {
            plot.push(*series, Shape::Line(points.iter().map(place).collect(), 2, opacity));
        }
    }
    plot.html("latency against percentile")
}

/// End in seconds and latencies of all time series of a page, which share their axes.
pub(super) fn series_extent<'a>(all: impl Iterator<Item = &'a Series>) -> (f64, Vec<f64>) {
    let (mut end, mut heights) = (0.0_f64, Vec::new());
    for series in all {
        end = series.bins.iter().map(|bin| bin.at_s + series.bin_s).fold(end, f64::max);
        heights.extend(series.bins.iter().flat_map(|bin| [bin.p50, bin.max]));
    }
    (if end > 0.0 { end } else { 1.0 }, heights)
}

pub(super) fn time_series(
    series: &Series,
    (end, heights): &(f64, Vec<f64>),
    colour: usize,
    bands: Vec<(f64, f64)>,
    name: &str,
) -> String {
    let mut plot = Plot::new(Axis::Seconds(*end), heights.clone());
    (plot.height, plot.bands) = (210, bands);
    let at = |bin: &Bin| bin.at_s + series.bin_s / 2.0;
    plot.push(colour, Shape::Dots(series.bins.iter().map(|bin| (at(bin), bin.max)).collect(), 2));
    // Where the strategy paused, its line has a gap.
    let bins = series.bins.as_slice();
    for stretch in bins.chunk_by(|one, next| next.at_s - one.at_s < 1.5 * series.bin_s) {
        let line = |height: fn(&Bin) -> f64, width| {
            Shape::Line(stretch.iter().map(|bin| (at(bin), height(bin))).collect(), width, 1.0)
        };
        plot.push(colour, line(|bin| bin.p99, 1));
        plot.push(colour, line(|bin| bin.p50, 3));
    }
    plot.html(name)
}
