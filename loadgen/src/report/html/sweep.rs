//! The page of a sweep.

use std::collections::BTreeMap;

use super::compare::{estimate, ranged};
use super::page::{banner, document, escape, figure, ms, swatch, table, warnings};
use super::plot::{Axis, Layer, LineStyle, Plot, number};
use crate::compare::{Curve, KNEE, Knee, RATE, Row, SweepPoint, SweepReport, curves};
use crate::report::table::percent;

/// Most plots; the table has the rest.
const MAX_PLOTS: usize = 12;

type Axes = BTreeMap<String, f64>;

pub fn sweep_page(report: &SweepReport) -> String {
    let mut names: Vec<&str> = Vec::new();
    for row in report.points.iter().flat_map(|point| &point.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let page = Page {
        report,
        names,
        axis: main_axis(report),
    };
    let partial = if report.partial || report.points.iter().any(|point| point.partial) {
        let ended = "the sweep was ended before all its points were done";
        banner("partial", "PARTIAL", ended)
    } else {
        String::new()
    };
    let late = report.points.iter().filter(|point| !point.valid);
    let late = late.map(|point| {
        let place = place(&point.axes);
        format!("{place}: the generator was late, so its figures measure the generator")
    });
    let body = [
        partial,
        format!("<p class=\"headline\">{}</p>\n", escape(&headline(report))),
        warnings(late),
        page.regions(),
        page.plots(),
        page.knees(),
        page.points(),
    ];
    document("Strategies over a sweep", &body.concat())
}

/// The rate, or the first axis with several values if the rate has one.
fn main_axis(report: &SweepReport) -> &str {
    let several = |axis: &&str| {
        let mut values = report
            .points
            .iter()
            .filter_map(|point| point.axes.get(*axis));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let axes = report.points.iter().flat_map(|point| point.axes.keys());
    let mut axes = std::iter::once(RATE).chain(axes.map(String::as_str));
    axes.find(several).unwrap_or(RATE)
}

fn headline(report: &SweepReport) -> String {
    let mut wins: BTreeMap<&str, usize> = BTreeMap::new();
    for winner in report.points.iter().filter_map(SweepPoint::winner) {
        *wins.entry(winner).or_default() += 1;
    }
    let points = report.points.len();
    let ties = points - wins.values().sum::<usize>();
    let mut wins: Vec<(&str, usize)> = wins.into_iter().collect();
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let wins = wins.into_iter();
    let wins: String = wins
        .map(|(name, count)| format!("{name} has the lowest p99.9 at {count}, "))
        .collect();
    format!("Of {points} points: {wins}and at {ties} the best cannot be told apart.")
}

fn place(axes: &Axes) -> String {
    if axes.is_empty() {
        return "everything".to_owned();
    }
    let values = axes.iter();
    let values: Vec<String> = values
        .map(|(axis, value)| format!("{} {}", spoken(axis), number(*value)))
        .collect();
    values.join(", ")
}

fn spoken(axis: &str) -> String {
    axis.replace('_', " ")
}

struct Page<'a> {
    report: &'a SweepReport,
    /// Strategies in the order in which they first occur.
    names: Vec<&'a str>,
    /// Axis along which regions and plots run.
    axis: &'a str,
}

impl Page<'_> {
    fn series(&self, name: &str) -> usize {
        self.names
            .iter()
            .position(|other| *other == name)
            .unwrap_or(0)
    }

    fn swatch(&self, name: &str) -> String {
        swatch(self.series(name), name)
    }

    /// A row for each setting of the other axes, a column for each value of the main one.
    fn regions(&self) -> String {
        let axis = self.axis;
        let mut columns: Vec<f64> = Vec::new();
        let mut rows: Vec<(Axes, Vec<(f64, String)>)> = Vec::new();
        for point in &self.report.points {
            let mut others = point.axes.clone();
            let Some(value) = others.remove(axis) else {
                continue;
            };
            let best: String = point.best.iter().map(|name| self.swatch(name)).collect();
            let tie = if point.winner().is_none() {
                "<small>tie of</small>"
            } else {
                ""
            };
            let cell = (value, format!("{tie}{best}"));
            columns.push(value);
            match rows.iter_mut().find(|(axes, _)| *axes == others) {
                Some((_, cells)) => cells.push(cell),
                None => rows.push((others, vec![cell])),
            }
        }
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let row = |(others, cells): &(Axes, Vec<(f64, String)>)| {
            let cell = |column: &f64| {
                let found = cells.iter().find(|(value, _)| value == column);
                found.map_or_else(|| "-".to_owned(), |(_, cell)| cell.clone())
            };
            let name = std::iter::once(escape(&place(others)));
            name.chain(columns.iter().map(cell)).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        let header = std::iter::once(escape(&spoken(axis)));
        let header: Vec<String> = header.chain(columns.iter().copied().map(number)).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        format!(
            "<h2>Where each strategy wins</h2>\n<div class=\"cells\">{}</div><p \
             class=\"note\">The lowest p99.9; a tie where the 95 % intervals overlap.</p>\n",
            table(&header, &rows)
        )
    }

    fn plots(&self) -> String {
        let axis = self.axis;
        let all = curves(self.report.points.iter(), axis);
        let mut groups: Vec<&Axes> = Vec::new();
        for curve in &all {
            if !groups.contains(&&curve.axes) {
                groups.push(&curve.axes);
            }
        }
        let plots = groups.iter().take(MAX_PLOTS);
        let plots: String = plots.map(|axes| self.plot(&all, axes)).collect();
        let legend: Vec<(usize, &str)> = self.names.iter().copied().enumerate().collect();
        let more = match groups.len().saturating_sub(MAX_PLOTS) {
            0 => String::new(),
            more => format!(" {more} further settings are in the table alone."),
        };
        let note = format!(
            "Bars are 95 % intervals; dashed lines mark knees, where p99.9 exceeds {KNEE} times \
             its first value.{more}"
        );
        figure(
            &format!("Latency against {}", spoken(axis)),
            &legend,
            &plots,
            &note,
        )
    }

    /// The curves of all strategies at these other axes. All plots have the same scales.
    fn plot(&self, all: &[Curve], axes: &Axes) -> String {
        let axis = self.axis;
        let label = match axis {
            RATE => "rate, requests/s".to_owned(),
            other => spoken(other),
        };
        let points = || all.iter().flat_map(|curve| &curve.points);
        let heights = points().flat_map(|(_, estimate)| {
            let range = estimate.interval.map(|range| [range.low, range.high]);
            range.into_iter().flatten().chain([estimate.value])
        });
        let x = Axis::linear(&label, points().map(|(x, _)| *x), true);
        let mut plot = Plot::new(x, "p99.9 of latency, ms", heights.collect());
        for curve in all.iter().filter(|curve| curve.axes == *axes) {
            plot.layers
                .extend(layers(curve, self.series(&curve.strategy)));
        }
        let knees = self.report.knees.iter();
        for knee in knees.filter(|knee| axis == RATE && knee.axes == *axes) {
            plot.layers.extend(knee.rate.map(|x| Layer::Rule {
                x,
                label: format!("knee of {}", knee.strategy),
                series: self.series(&knee.strategy),
            }));
        }
        let title = place(axes);
        let plot = plot.html(&format!("p99.9 against {axis}, {title}"));
        if axes.is_empty() {
            return plot;
        }
        format!("<h3>{}</h3>\n{plot}", escape(&title))
    }

    fn knees(&self) -> String {
        if self.report.knees.is_empty() {
            return String::new();
        }
        let row = |knee: &Knee| {
            vec![
                self.swatch(&knee.strategy),
                escape(&place(&knee.axes)),
                number(knee.lowest_rate),
                ms(knee.p99_9_at_lowest),
                knee.rate.map_or_else(|| "none measured".to_owned(), number),
            ]
        };
        let rows: Vec<Vec<String>> = self.report.knees.iter().map(row).collect();
        let header = [
            "",
            "at",
            "lowest rate, requests/s",
            "p99.9 there, ms",
            "knee, requests/s",
        ];
        format!("<h2>Knees</h2>\n{}", table(&header, &rows))
    }

    fn points(&self) -> String {
        let row = |place: String, row: &Row| {
            let quoted = if row.quotable { "" } else { "*" };
            let tail = ranged(row.p99_9.value, quoted, row.p99_9.interval);
            vec![
                place,
                self.swatch(&row.name),
                row.samples.to_string(),
                ms(row.p50),
                ms(row.p99),
                tail,
                estimate(row.gap_ratio),
                percent(Some(row.without_answer)),
                percent(row.accuracy),
                percent(row.extra_work),
            ]
        };
        let mut rows = Vec::new();
        for point in &self.report.points {
            let mut place = escape(&place(&point.axes));
            // Only the first row of a point says where it is.
            let of_point = point.rows.iter();
            rows.extend(of_point.map(|strategy| row(std::mem::take(&mut place), strategy)));
        }
        let narrower = format!("gap:<br>{}<br>/ this", escape(&self.report.baseline));
        let header = [
            "at",
            "strategy",
            "requests",
            "p50, ms",
            "p99, ms",
            "p99.9, ms",
            &narrower,
            "no answer",
            "accuracy",
            "extra<br>work",
        ];
        format!(
            "<h2>All points</h2>\n{}<p class=\"note\">* has too few samples to be quoted.</p>\n",
            table(&header, &rows)
        )
    }
}

fn layers(curve: &Curve, series: usize) -> Vec<Layer> {
    let points = curve.points.iter();
    let points: Vec<(f64, f64)> = points.map(|(x, estimate)| (*x, estimate.value)).collect();
    let whiskers = curve.points.iter().filter_map(|(x, estimate)| {
        let range = estimate.interval?;
        Some(Layer::Whisker {
            x: *x,
            low: range.low,
            high: range.high,
            series,
        })
    });
    let dots = Layer::Dots {
        points: points.clone(),
        series,
        radius: 2,
    };
    let line = Layer::Line {
        points,
        series,
        style: LineStyle::SERIES,
    };
    whiskers.chain([dots, line]).collect()
}
