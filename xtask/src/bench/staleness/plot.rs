//! The table as a plot: seconds to the loss over slack.

use std::fmt::Write as _;

use super::report::Table;
use crate::bench::spread::Spread;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;

/// The slacks, by their places; BSP is that of 0, and eventual comes after all.
const SLACKS: [&str; 6] = ["0", "1", "2", "4", "8", "any"];

/// Models with their colours, which readers with any colour vision tell apart (Okabe and Ito).
const SERIES: [(&str, &str, &str); 3] = [
    ("bounded-delay", "bounded delay", "#0072b2"),
    ("ssp", "SSP", "#d55e00"),
    ("eager-ssp", "eager SSP", "#009e73"),
];

pub(super) fn svg(table: &Table) -> String {
    let points: Vec<(&str, usize, Spread)> = table
        .seconds()
        .filter_map(|(model, spread)| place(model).map(|(s, x)| (s, x, spread)))
        .collect();
    let finite = points
        .iter()
        .map(|(_, _, spread)| spread.highest)
        .filter(|seconds| seconds.is_finite());
    let most = finite.fold(0.0, f64::max).ceil().max(1.0);
    let x = |place: usize| {
        LEFT + 12.0 + place as f64 / (SLACKS.len() - 1) as f64 * (WIDTH - LEFT - RIGHT - 24.0)
    };
    let y = |seconds: f64| HEIGHT - BOTTOM - seconds.min(most) / most * (HEIGHT - TOP - BOTTOM);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
            font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
            fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\">{}</text>\n",
        table.title()
    );
    // Writing to a string never fails.
    for tick in 0..=4 {
        let seconds = most * f64::from(tick) / 4.0;
        let (at, right) = (y(seconds), WIDTH - RIGHT);
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{seconds:.1}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (at, slack) in SLACKS.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{slack}</text>",
            x(at),
            HEIGHT - BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">clocks that may be \
            missed</text>\n<text x=\"14\" y=\"{:.1}\" transform=\"rotate(-90 14 {:.1})\" \
            text-anchor=\"middle\">seconds to the loss</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        HEIGHT / 2.0,
        HEIGHT / 2.0
    );
    for (number, (series, label, colour)) in SERIES.iter().enumerate() {
        let shift = number as f64 * 4.0 - 4.0;
        // BSP and eventual are the ends of all of them.
        let own = points
            .iter()
            .filter(|(model, _, _)| model == series || model.is_empty());
        let mut own: Vec<(f64, Spread)> = own
            .map(|&(_, at, spread)| (x(at) + shift, spread))
            .collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line: Vec<String> = own
            .iter()
            .map(|(at, spread)| format!("{at:.1},{:.1}", y(spread.median)))
            .collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
            line.join(" ")
        );
        for (at, spread) in own {
            let (low, high) = (y(spread.lowest), y(spread.highest));
            let _ = writeln!(
                text,
                "<path d=\"M{at:.1} {low:.1}V{high:.1}\" stroke=\"{colour}\"/><circle \
                    cx=\"{at:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                y(spread.median)
            );
        }
        let at = TOP + 16.0 + number as f64 * 18.0;
        let left = WIDTH - RIGHT + 14.0;
        let _ = writeln!(
            text,
            "<path d=\"M{left} {:.1}h18\" stroke=\"{colour}\"/><text x=\"{:.1}\" \
                y=\"{at:.1}\">{label}</text>",
            at - 4.0,
            left + 24.0
        );
    }
    text.push_str("</svg>\n");
    text
}

/// A model's series, empty for both ends, and its place among the slacks.
fn place(model: &str) -> Option<(&str, usize)> {
    match model.split_once(':') {
        Some((series, slack)) => Some((series, SLACKS.iter().position(|other| *other == slack)?)),
        None if model == "bsp" => Some(("", 0)),
        None => Some(("", SLACKS.len() - 1)),
    }
}
