//! A sweep as text and as a page.

use std::fmt::{self, Display, Formatter};

use super::page::{Cell, Page, Table, escape, ms};
use super::plot::{Axis, Plot, Shape, number};
use crate::compare::{Axes, Curve, SweepReport, curves};

const MAX_PLOTS: usize = 12;

pub fn sweep_page(report: &SweepReport) -> String {
    page(report).html()
}

impl Display for SweepReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        page(self).fmt(out)
    }
}

fn page(report: &SweepReport) -> Page {
    let mut page = summary(report);
    let (names, all) = (names(report), curves(&report.points));
    let mut settings: Vec<&Axes> = all.iter().map(|curve| &curve.axes).collect();
    settings.dedup();
    let plots = settings.iter().take(MAX_PLOTS);
    let plots: String = plots.map(|axes| plot(&names, &all, axes)).collect();
    let legend: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
    let more = match settings.len().saturating_sub(MAX_PLOTS) {
        0 => String::new(),
        more => format!(" {more} further settings are in the table alone."),
    };
    let note = format!("Bars are 95 % intervals.{more}");
    if !settings.is_empty() {
        page.figure("Latency against rate", &legend, &plots, &note);
    }
    let note = "* has too few samples to be quoted.";
    page.table("All points", &points(report), note);
    page
}

fn summary(report: &SweepReport) -> Page {
    let mut page = Page::new("Strategies over a sweep".to_owned());
    if report.partial {
        let ended = "the sweep was ended before all its points were done";
        page.banner("PARTIAL", ended);
    }
    let note = "The lowest p99.9; a tie where the 95 % intervals overlap.";
    page.table("Where each strategy wins", &winners(report), note);
    let mut knees = Table::new([
        "",
        "at",
        "lowest rate, requests/s",
        "p99.9 there, ms",
        "knee, requests/s",
    ]);
    for knee in &report.knees {
        let cells = [
            place(&knee.axes),
            number(knee.lowest_rate),
            ms(knee.p99_9_at_lowest),
            knee.rate.map_or("none measured".to_owned(), number),
        ];
        knees.row(named(report, &knee.strategy), cells.map(Cell::from));
    }
    let note = "The lowest rate at which p99.9 exceeds twice its value at the lowest rate.";
    page.table("Knees", &knees, note);
    page
}

fn names(report: &SweepReport) -> Vec<&str> {
    let rows = report.points.first().map(|point| point.rows.iter());
    rows.into_iter()
        .flatten()
        .map(|row| row.name.as_str())
        .collect()
}

fn named(report: &SweepReport, name: &str) -> Cell {
    let place = names(report).iter().position(|known| *known == name);
    Cell::named(place.unwrap_or(0), name)
}

fn place(axes: &Axes) -> String {
    let values = axes.iter();
    let values =
        values.map(|(axis, value)| format!("{} {}", axis.replace('_', " "), number(*value)));
    match values.collect::<Vec<_>>().join(", ") {
        nowhere if nowhere.is_empty() => "everything".to_owned(),
        place => place,
    }
}

fn winners(report: &SweepReport) -> Table {
    let mut table = Table::new(["at", "lowest p99.9"]);
    for point in &report.points {
        let best = match point.best.as_slice() {
            [] => Cell::from("too few queries"),
            [winner] => named(report, winner),
            tied => Cell::from(tied.join(", ")).with_small("a tie".to_owned()),
        };
        table.row(place(&point.axes), [best]);
    }
    table
}

fn points(report: &SweepReport) -> Table {
    let narrower = format!("times narrower, against {}", report.baseline);
    let mut table = Table::new([
        "at",
        "strategy",
        "requests",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        &narrower,
        "no answer",
        "accuracy",
        "extra work",
    ]);
    for point in &report.points {
        let mut place = place(&point.axes);
        for row in &point.rows {
            let star = if row.quotable { "" } else { "*" };
            let cells = [
                named(report, &row.name),
                Cell::count(row.samples),
                Cell::from(ms(row.p50)),
                Cell::from(ms(row.p99)),
                Cell::ranged(row.p99_9.value, row.p99_9.interval).with_mark(star),
                Cell::estimate(row.gap_ratio),
                Cell::percent(Some(row.without_answer)),
                Cell::percent(row.accuracy),
                Cell::percent(row.extra_work),
            ];
            // Only the first row of a point says where it is.
            table.row(std::mem::take(&mut place), cells);
        }
    }
    table
}

/// The curves of all strategies at these other axes. All plots have the same scales.
fn plot(names: &[&str], all: &[Curve], axes: &Axes) -> String {
    let series = |name: &str| names.iter().position(|known| *known == name).unwrap_or(0);
    let points = || all.iter().flat_map(|curve| &curve.points);
    let heights = points().flat_map(|(_, estimate)| estimate.extent());
    let highest = points().map(|(rate, _)| *rate).fold(1.0, f64::max);
    let x = Axis::Linear("rate, requests/s", 1.05 * highest);
    let mut plot = Plot::new(x, "p99.9 of latency, ms", heights.collect());
    for curve in all.iter().filter(|curve| curve.axes == *axes) {
        let series = series(&curve.strategy);
        let points = curve.points.iter();
        let line: Vec<(f64, f64)> = points.map(|(x, estimate)| (*x, estimate.value)).collect();
        for (x, estimate) in &curve.points {
            if let Some(range) = estimate.interval {
                plot.push(series, Shape::Whisker(*x, range));
            }
        }
        plot.push(series, Shape::Dots(line.clone(), 2));
        plot.push(series, Shape::Line(line, 2, 1.0));
    }
    let title = place(axes);
    let plot = plot.html(&format!("p99.9 against rate, {title}"));
    match axes.is_empty() {
        true => plot,
        false => format!("<h3>{}</h3>\n{plot}", escape(&title)),
    }
}
