//! The dashboard's panels drawn from what Prometheus answered, for people to look at: an HTML page
//! of plain plots. Grafana draws them better; this shows whether the numbers make sense.

use std::fmt::Write as _;

use anyhow::Result;

use super::prometheus::{Line, Prometheus};
use super::queries::Query;

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 120.0;
const COLOURS: [&str; 6] = [
    "#2457a6", "#b3261e", "#1d7f4e", "#8a5a00", "#6b4fa0", "#5b6675",
];

/// A page with one plot for each panel, of the last `seconds`.
pub(super) fn draw(queries: &[Query], prometheus: &Prometheus, seconds: u64) -> Result<String> {
    let mut page = "<!DOCTYPE html><meta \
        charset=\"utf-8\"><title>Panels</title><style>body{font:13px sans-serif;display:flex;flex-wrap:wrap;gap:12px;margin:12px}figure{margin:0;border:1px solid #ccc;border-radius:6px;padding:8px;width:400px}figcaption{font-weight:bold}p{margin:2px 0}</style>"
        .to_owned();
    let titles = queries
        .iter()
        .filter_map(|query| query.panel.as_ref())
        .map(|panel| panel.title.as_str());
    let mut titles: Vec<&str> = titles.collect();
    titles.dedup();
    for title in titles {
        let (mut lines, mut unit) = (Vec::new(), "");
        for query in queries {
            let Some(panel) = query.panel.as_ref().filter(|panel| panel.title == title) else {
                continue;
            };
            unit = &panel.unit;
            for line in prometheus.range(&query.expression, seconds)? {
                lines.push((legend(&panel.legend, &line), line.points));
            }
        }
        plot(&mut page, title, unit, &lines);
    }
    Ok(page)
}

fn legend(pattern: &str, line: &Line) -> String {
    let fill = |text: String, (name, value): (&String, &String)| {
        text.replace(&format!("{{{{{name}}}}}"), value)
    };
    line.labels.iter().fold(pattern.to_owned(), fill)
}

fn plot(page: &mut String, title: &str, unit: &str, lines: &[(String, Vec<(f64, f64)>)]) {
    let points = || {
        lines
            .iter()
            .flat_map(|(_, points)| points)
            .filter(|(_, value)| value.is_finite())
    };
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        points()
            .map(pick)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
    };
    let ((from, to), (_, top)) = (bounds(|point| point.0), bounds(|point| point.1));
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let _ = write!(
        page,
        "<figure><figcaption>{}</figcaption><p>0 to {}</p><svg width=\"{WIDTH}\" \
            height=\"{HEIGHT}\">",
        escape(title),
        shown(top, unit)
    );
    for ((_, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let finite = points.iter().filter(|(_, value)| value.is_finite());
        let at = |(time, value): &(f64, f64)| {
            let (x, y) = (
                (time - from) / (to - from).max(1.0) * WIDTH,
                HEIGHT - value / top * (HEIGHT - 2.0) - 1.0,
            );
            format!("{x:.1},{y:.1}")
        };
        let path: Vec<String> = finite.map(at).collect();
        let _ = write!(
            page,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
    }
    page.push_str("</svg>");
    for ((legend, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let last = points
            .last()
            .map_or("nothing".to_owned(), |(_, value)| shown(*value, unit));
        let broken = points
            .iter()
            .filter(|(_, value)| !value.is_finite())
            .count();
        let broken = if broken > 0 {
            format!(", {broken} of {} not finite", points.len())
        } else {
            String::new()
        };
        let _ = write!(
            page,
            "<p><span style=\"color:{colour}\">&#9632;</span> {}: {last}{broken}</p>",
            escape(legend)
        );
    }
    page.push_str("</figure>");
}

/// As Grafana shows a value of this unit.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        _ if !value.is_finite() => value.to_string(),
        "s" if value < 1.0 => format!("{:.2} ms", value * 1e3),
        "s" => format!("{value:.2} s"),
        "percentunit" => format!("{:.1} %", value * 1e2),
        "reqps" | "ops" => format!("{value:.2}/s"),
        _ => format!("{value:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
