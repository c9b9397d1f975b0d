//! The table as a plot: seconds to the loss over slack.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::report::Table;
use crate::bench::spread::Spread;

const SIZE: (u32, u32) = (640, 300);

/// The slacks, by their places; BSP is that of 0, and eventual comes after all.
const SLACKS: [&str; 6] = ["0", "1", "2", "4", "8", "any"];

/// Models with their colours, which readers with any colour vision tell apart (Okabe and Ito).
const SERIES: [(&str, &str, RGBColor); 3] = [
    ("bounded-delay", "bounded delay", RGBColor(0, 114, 178)),
    ("ssp", "SSP", RGBColor(213, 94, 0)),
    ("eager-ssp", "eager SSP", RGBColor(0, 158, 115)),
];

pub(super) fn svg(table: &Table) -> Result<String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    draw(table, &area).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    drop(area);
    Ok(text + "\n")
}

fn draw(
    table: &Table,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let points: Vec<(&str, usize, Spread)> = table
        .seconds()
        .filter_map(|(model, spread)| place(model).map(|(s, x)| (s, x, spread)))
        .collect();
    let highest = points.iter().map(|(_, _, spread)| spread.highest);
    let finite = highest.filter(|seconds| seconds.is_finite());
    let most = finite.fold(0.0, f64::max).ceil().max(1.0);
    let last = SLACKS.len() - 1;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(table.title(), ("sans-serif", 14))
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(-0.2..last as f64 + 1.8, 0.0..most)?;
    let slack = |at: &f64| {
        let slack = SLACKS.get(*at as usize).filter(|_| at.fract() == 0.0);
        slack.map_or(String::new(), |slack| (*slack).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(2 * SLACKS.len())
        .x_label_formatter(&slack)
        .x_desc("clocks that may be missed")
        .y_desc("seconds to the loss")
        .draw()?;
    for (number, (series, label, colour)) in SERIES.into_iter().enumerate() {
        let shift = (number as f64 - 1.0) * 0.04;
        // BSP and eventual are the ends of all of them.
        let own = points
            .iter()
            .filter(|(model, _, _)| *model == series || model.is_empty());
        let mut own: Vec<(f64, Spread)> = own
            .map(|&(_, at, spread)| (at as f64 + shift, spread))
            .collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
        let medians = own
            .iter()
            .map(|(at, spread)| (*at, spread.median.min(most)));
        chart
            .draw_series(LineSeries::new(medians, colour))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        chart.draw_series(own.iter().map(|(at, spread)| {
            let ends = [spread.lowest, spread.highest].map(|seconds| (*at, seconds.min(most)));
            PathElement::new(ends, colour)
        }))?;
        chart.draw_series(
            own.iter().map(|(at, spread)| {
                Circle::new((*at, spread.median.min(most)), 3, colour.filled())
            }),
        )?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .draw()?;
    area.present()?;
    Ok(())
}

/// A model's series, empty for both ends, and its place among the slacks.
fn place(model: &str) -> Option<(&str, usize)> {
    match model.split_once(':') {
        Some((series, slack)) => Some((series, SLACKS.iter().position(|other| *other == slack)?)),
        None if model == "bsp" => Some(("", 0)),
        None => Some(("", SLACKS.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Run;
    use super::*;

    #[test]
    fn plot_has_a_line_for_each_series_and_names_its_axes() {
        let models = [
            "bsp",
            "ssp:1",
            "ssp:4",
            "eager-ssp:2",
            "bounded-delay:8",
            "eventual",
        ];
        let mut table = Table::new("turns:100", 7, models);
        for (model, seconds) in (0..).zip([5.2, 4.0, 2.5, 3.1, 2.2, 2.9]) {
            for factor in [0.8, 1.0, 1.3] {
                let seconds = seconds * factor;
                let text = format!(
                    "{{\"seconds\": {seconds}, \"minibatches\": 400, \"idle\": 0.25, \
                        \"late\": 0, \"target\": 0.5}}"
                );
                table.add(model, Run::parse(&text).unwrap());
            }
        }
        let svg = svg(&table).unwrap();
        for word in [
            "clocks that may be missed",
            "seconds to the loss",
            "bounded delay",
            "eager SSP",
            "any",
            "another one drawn every 100 ms",
        ] {
            assert!(svg.contains(word), "{word} is not in\n{svg}");
        }
    }
}
