//! A comparison as text and as a page.

use std::fmt::{self, Display, Formatter};

use super::page::{Cell, Page, Table, ms, swatch};
use super::run_page::{SERIES_NOTE, SPECTRUM_NOTE, series_extent, spectrum, time_series};
use super::{Accuracy, Summary};
use crate::compare::{CompareReport, StrategyReport, WarningKind};
use crate::target::Provenance;

const MAX_PANELS: usize = 12;

pub fn compare_page(report: &CompareReport) -> String {
    page(report).html()
}

impl Display for CompareReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        page(self).fmt(out)
    }
}

fn page(report: &CompareReport) -> Page {
    let mut page = summary(report);
    let strategies = || report.strategies.iter().enumerate();
    let legend = strategies().map(|(series, strategy)| (series, strategy.name.as_str()));
    let spectra = strategies()
        .map(|(series, strategy)| (series, strategy.latency.count, strategy.spectrum.as_slice()));
    let plot = spectrum(&spectra.collect::<Vec<_>>());
    let legend: Vec<(usize, &str)> = legend.collect();
    page.figure("Latency by percentile", &legend, &plot, SPECTRUM_NOTE);
    let note = format!("{SERIES_NOTE} Faults that were injected are orange.");
    page.figure("Latency over time", &[], &over_time(report), &note);
    page.fields("Settings", &report.settings);
    page.facts("Rounds that count", [("rounds", report.rounds.to_string())]);
    page.fields("Bootstrap", &report.bootstrap);
    page
}

fn summary(report: &CompareReport) -> Page {
    let mut page = Page::new(format!("Strategies compared: {}", report.settings.model));
    let warnings = |partial: bool| {
        let is_partial = |kind| kind == WarningKind::Partial;
        let wanted = report.warnings.iter().filter(move |it| is_partial(it.kind) == partial);
        wanted.map(|warning| warning.text.clone())
    };
    if report.partial {
        let ended = warnings(true).next();
        page.banner("PARTIAL", ended.as_deref().unwrap_or("ended early"));
    }
    if !report.valid {
        let late = "the generator did not keep its schedule, so some of these figures measure the \
                    generator";
        page.banner("NOT VALID", late);
    }
    page.headline(&report.headline());
    page.warnings(warnings(false));
    let note = "From the planned send, over all requests that were due; one without an answer \
                counts as the timeout or longer. Small: 95 % intervals by the block bootstrap. * \
                has too few samples to be quoted; beside it, how many more it takes.";
    page.table("Latency", &latencies(report), note);
    page.table("Answers and cost", &answers(report), "");
    let mut faults = Table::new(["s", "until", "fault", "strategy"]);
    for fault in &report.faults {
        let cells = [
            Cell::or_dash(fault.until_s.map(|until| format!("{until:.1}"))),
            Cell::from(format!("{} {}", fault.instance, fault.what)),
            Cell::from(fault.strategy.as_deref().unwrap_or("all")),
        ];
        faults.row(format!("{:.1}", fault.at_s), cells);
    }
    page.table("Faults", &faults, "");
    let described = report.strategies.iter().map(|it| (it.name.as_str(), it.description.clone()));
    page.facts("Strategies", described);
    page
}

fn latencies(report: &CompareReport) -> Table {
    let baseline = &report.baseline;
    let relations = [
        "gap p99.9 - p50".to_owned(),
        format!("times narrower, against {baseline}"),
        format!("p50: this / {baseline}"),
    ];
    let header = ["latency, ms", "requests"].map(str::to_owned).into_iter();
    let mut table = Table::new(header.chain(Summary::NAMES.map(str::to_owned)).chain(relations));
    for (series, strategy) in report.strategies.iter().enumerate() {
        let time = |(name, time): (&str, f64)| match strategy.confidence.get(name) {
            Some(confidence) if confidence.needs_samples > 0 => {
                let needed = format!("+ {} requests", confidence.needs_samples);
                Cell::from(format!("{}*", ms(time))).with_small(needed)
            }
            confidence => Cell::ranged(time, confidence.and_then(|it| it.bootstrap)),
        };
        let times = strategy.latency.figures().map(time);
        let relations = [Some(strategy.gap_ms), strategy.gap_ratio, strategy.p50_ratio];
        let cells = std::iter::once(Cell::count(strategy.latency.count)).chain(times);
        table.row(Cell::named(series, &strategy.name), cells.chain(relations.map(Cell::estimate)));
    }
    table
}

fn answers(report: &CompareReport) -> Table {
    let mut table = Table::new([
        "",
        "instances",
        "no answer",
        "accuracy",
        "of exact",
        "of reconstructed",
        "reconstructed",
        "extra work",
        "wasted work",
        "unrecoverable groups",
    ]);
    for (series, strategy) in report.strategies.iter().enumerate() {
        let of = |provenance| strategy.provenance.get(&provenance);
        let correct = |provenance| share_correct(of(provenance)?.accuracy);
        let shares = [
            Some(strategy.counts.without_answer()),
            share_correct(strategy.accuracy),
            correct(Provenance::Exact),
            correct(Provenance::Reconstructed),
            Some(of(Provenance::Reconstructed).map_or(0.0, |answers| answers.share)),
            strategy.cost.extra_work,
            strategy.cost.wasted_work,
        ];
        let unrecoverable = strategy.cost.redundancy.map(|counts| counts.unrecoverable);
        let instances = std::iter::once(Cell::or_dash(strategy.instances));
        let cells = instances.chain(shares.map(Cell::percent));
        table.row(Cell::named(series, &strategy.name), cells.chain([Cell::or_dash(unrecoverable)]));
    }
    table
}

fn share_correct(accuracy: Option<Accuracy>) -> Option<f64> {
    accuracy.map(|accuracy| accuracy.accuracy)
}

fn over_time(report: &CompareReport) -> String {
    let extent = series_extent(report.strategies.iter().map(|strategy| &strategy.series));
    let panel = |(series, strategy): (usize, &StrategyReport)| {
        let hit = |name: &Option<String>| name.as_ref().is_none_or(|name| *name == strategy.name);
        let faults = report.faults.iter().filter(|fault| hit(&fault.strategy));
        let bands = faults.map(|fault| (fault.at_s, fault.until_s.unwrap_or(fault.at_s)));
        let name = format!("latency of {} over time", strategy.name);
        let plot = time_series(&strategy.series, &extent, series, bands.collect(), &name);
        format!("<h3>{}</h3>\n{plot}", swatch(series, &strategy.name))
    };
    report.strategies.iter().enumerate().take(MAX_PANELS).map(panel).collect()
}
