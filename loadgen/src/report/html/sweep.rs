//! The page of a sweep.

use std::collections::BTreeMap;

use super::compare::estimate;
use super::page::{banner, document, escape, figure, ms, swatch, table, warnings};
use super::plot::{Axis, Layer, LineStyle, Plot, number};
use crate::compare::{Curve, KNEE, Knee, RATE, SweepPoint, SweepReport, curves};
use crate::report::table::percent;

/// Most plots; the table has the rest.
const MAX_PLOTS: usize = 12;

/// A sweep as an HTML document.
pub fn sweep_page(report: &SweepReport) -> String {
    let names = names(report);
    let axis = main_axis(report);
    let partial = report.partial || report.points.iter().any(|point| point.partial);
    let banner = if partial {
        banner(
            "partial",
            "PARTIAL",
            "the sweep was ended before all its points were done",
        )
    } else {
        String::new()
    };
    let late = report
        .points
        .iter()
        .filter(|point| !point.valid)
        .map(|point| {
            let place = place(&point.axes);
            format!("{place}: the generator was late, so its figures measure the generator")
        });
    let body = [
        banner,
        format!("<p class=\"headline\">{}</p>\n", escape(&headline(report))),
        warnings(late),
        regions(report, &names, &axis),
        plots(report, &names, &axis),
        knee_table(report, &names),
        points_table(report, &names),
    ];
    document("Strategies over a sweep", &body.concat())
}

fn names(report: &SweepReport) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in report.points.iter().flat_map(|point| &point.rows) {
        if !names.contains(&row.name) {
            names.push(row.name.clone());
        }
    }
    names
}

fn series(names: &[String], name: &str) -> usize {
    names.iter().position(|other| other == name).unwrap_or(0)
}

/// The rate, or the first axis with several values if the rate has one.
fn main_axis(report: &SweepReport) -> String {
    let several = |axis: &str| {
        let mut values = report
            .points
            .iter()
            .filter_map(|point| point.axes.get(axis));
        values
            .next()
            .is_some_and(|first| values.any(|value| value != first))
    };
    let axes = report.points.iter().flat_map(|point| point.axes.keys());
    let others = axes.map(String::as_str).filter(|axis| several(axis));
    let found = std::iter::once(RATE)
        .filter(|rate| several(rate))
        .chain(others)
        .next();
    found.unwrap_or(RATE).to_owned()
}

fn headline(report: &SweepReport) -> String {
    let mut wins: BTreeMap<&str, usize> = BTreeMap::new();
    for winner in report.points.iter().filter_map(SweepPoint::winner) {
        *wins.entry(winner).or_default() += 1;
    }
    let told: usize = wins.values().sum();
    let mut wins: Vec<(&str, usize)> = wins.into_iter().collect();
    wins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let each: String = wins
        .iter()
        .map(|(name, count)| format!("{name} has the lowest p99.9 at {count}, "))
        .collect();
    let points = report.points.len();
    format!(
        "Of {points} points: {each}and at {} the best cannot be told apart.",
        points - told
    )
}

fn place(axes: &BTreeMap<String, f64>) -> String {
    let values: Vec<String> = axes
        .iter()
        .map(|(axis, value)| format!("{} {}", spoken(axis), number(*value)))
        .collect();
    if values.is_empty() {
        "everything".to_owned()
    } else {
        values.join(", ")
    }
}

fn spoken(axis: &str) -> String {
    axis.replace('_', " ")
}

fn without(axes: &BTreeMap<String, f64>, axis: &str) -> BTreeMap<String, f64> {
    axes.iter()
        .filter(|(name, _)| *name != axis)
        .map(|(name, value)| (name.clone(), *value))
        .collect()
}

/// A row for each setting of the other axes, a column for each value of the main one.
fn regions(report: &SweepReport, names: &[String], axis: &str) -> String {
    let mut columns: Vec<f64> = report
        .points
        .iter()
        .filter_map(|point| point.axes.get(axis).copied())
        .collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let mut rows: Vec<BTreeMap<String, f64>> = Vec::new();
    for point in &report.points {
        let others = without(&point.axes, axis);
        if !rows.contains(&others) {
            rows.push(others);
        }
    }
    let cell = |others: &BTreeMap<String, f64>, value: f64| {
        let here = |point: &&SweepPoint| {
            point.axes.get(axis) == Some(&value) && without(&point.axes, axis) == *others
        };
        let Some(point) = report.points.iter().find(here) else {
            return "-".to_owned();
        };
        let best: String = point
            .best
            .iter()
            .map(|name| swatch(series(names, name), name))
            .collect();
        if point.winner().is_some() {
            best
        } else {
            format!("<small>tie of</small>{best}")
        }
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|others| {
            let cells = columns.iter().map(|value| cell(others, *value));
            std::iter::once(escape(&place(others)))
                .chain(cells)
                .collect()
        })
        .collect();
    let header: Vec<String> = std::iter::once(escape(&spoken(axis)))
        .chain(columns.iter().map(|value| number(*value)))
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    format!(
        "<h2>Where each strategy wins</h2>\n<div class=\"cells\">{}</div><p class=\"note\">The \
            lowest p99.9; a tie where the 95 % intervals overlap.</p>\n",
        table(&header, &rows)
    )
}

fn plots(report: &SweepReport, names: &[String], axis: &str) -> String {
    let all = curves(report.points.iter(), axis);
    let heights = all
        .iter()
        .flat_map(|curve| &curve.points)
        .flat_map(|(_, estimate)| {
            let range = estimate
                .interval
                .map_or([estimate.value; 2], |range| [range.low, range.high]);
            [estimate.value, range[0], range[1]]
        });
    let heights: Vec<f64> = heights.collect();
    let unit = if axis == RATE {
        "rate, requests/s".to_owned()
    } else {
        spoken(axis)
    };
    let x = Axis::linear(
        &unit,
        all.iter().flat_map(|curve| &curve.points).map(|(x, _)| *x),
        true,
    );
    let mut groups: Vec<&BTreeMap<String, f64>> = Vec::new();
    for curve in &all {
        if !groups.contains(&&curve.axes) {
            groups.push(&curve.axes);
        }
    }
    let one = |axes: &&BTreeMap<String, f64>| {
        let mut plot = Plot::new(x.clone(), "p99.9 of latency, ms", heights.clone());
        for curve in all.iter().filter(|curve| curve.axes == **axes) {
            plot.layers
                .extend(layers(curve, series(names, &curve.strategy)));
        }
        for knee in report
            .knees
            .iter()
            .filter(|knee| axis == RATE && knee.axes == **axes)
        {
            plot.layers
                .extend(knee_layer(knee, series(names, &knee.strategy)));
        }
        let title = place(axes);
        let heading = if axes.is_empty() {
            String::new()
        } else {
            format!("<h3>{}</h3>\n", escape(&title))
        };
        format!(
            "{heading}{}",
            plot.html(&format!("p99.9 against {axis}, {title}"))
        )
    };
    let plots: String = groups.iter().take(MAX_PLOTS).map(one).collect();
    let legend: Vec<(usize, &str)> = names
        .iter()
        .enumerate()
        .map(|(place, name)| (place, name.as_str()))
        .collect();
    let more = groups.len().saturating_sub(MAX_PLOTS);
    let more = if more > 0 {
        format!(" {more} further settings are in the table alone.")
    } else {
        String::new()
    };
    let note = format!(
        "Bars are 95 % intervals; dashed lines mark knees, where p99.9 exceeds {KNEE} times its \
            first value.{more}"
    );
    let title = if axis == RATE {
        "Latency against rate".to_owned()
    } else {
        format!("Latency against {}", spoken(axis))
    };
    figure(&title, &legend, &plots, &note)
}

fn layers(curve: &Curve, series: usize) -> Vec<Layer> {
    let points: Vec<(f64, f64)> = curve
        .points
        .iter()
        .map(|(x, estimate)| (*x, estimate.value))
        .collect();
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
    whiskers
        .chain([
            dots,
            Layer::Line {
                points,
                series,
                style: LineStyle::SERIES,
            },
        ])
        .collect()
}

fn knee_layer(knee: &Knee, series: usize) -> Option<Layer> {
    let label = format!("knee of {}", knee.strategy);
    knee.rate.map(|x| Layer::Rule { x, label, series })
}

fn knee_table(report: &SweepReport, names: &[String]) -> String {
    if report.knees.is_empty() {
        return String::new();
    }
    let row = |knee: &Knee| {
        vec![
            swatch(series(names, &knee.strategy), &knee.strategy),
            escape(&place(&knee.axes)),
            number(knee.lowest_rate),
            ms(knee.p99_9_at_lowest),
            knee.rate.map_or_else(|| "none measured".to_owned(), number),
        ]
    };
    let rows: Vec<Vec<String>> = report.knees.iter().map(row).collect();
    let header = [
        "",
        "at",
        "lowest rate, requests/s",
        "p99.9 there, ms",
        "knee, requests/s",
    ];
    format!("<h2>Knees</h2>\n{}", table(&header, &rows))
}

fn points_table(report: &SweepReport, names: &[String]) -> String {
    let rows = report.points.iter().flat_map(|point| {
        point.rows.iter().enumerate().map(|(number, row)| {
            let quoted = if row.quotable { "" } else { "*" };
            let range = row.p99_9.interval;
            let range = range
                .map(|range| format!("<small>{} to {}</small>", ms(range.low), ms(range.high)));
            vec![
                if number == 0 {
                    escape(&place(&point.axes))
                } else {
                    String::new()
                },
                swatch(series(names, &row.name), &row.name),
                row.samples.to_string(),
                ms(row.p50),
                ms(row.p99),
                format!(
                    "{}{quoted}{}",
                    ms(row.p99_9.value),
                    range.unwrap_or_default()
                ),
                estimate(row.gap_ratio),
                percent(Some(row.without_answer)),
                percent(row.accuracy),
                percent(row.extra_work),
            ]
        })
    });
    let narrower = format!("gap:<br>{}<br>/ this", escape(&report.baseline));
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
        table(&header, &rows.collect::<Vec<_>>())
    )
}
