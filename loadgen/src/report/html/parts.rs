//! Plots that several reports have.

use super::page::SERIES;
use super::plot::{Layer, Mark, Plot};
use super::scale::Axis;
use crate::compare::{Series, SpectrumPoint, samples_needed};

/// A distribution with its name and its number of samples.
pub(super) struct Distribution<'a> {
    pub(super) points: &'a [SpectrumPoint],
    pub(super) samples: u64,
    pub(super) series: usize,
}

pub(super) const SPECTRUM_NOTE: &str = "A share of the requests, on the horizontal axis, was \
    answered within the time on the vertical one. A line is faint where it rests on too few \
    requests for the percentile to be quoted.";

/// Latency against percentile.
pub(super) fn spectrum(distributions: &[Distribution<'_>]) -> String {
    let times = distributions
        .iter()
        .flat_map(|distribution| distribution.points)
        .map(|point| point.ms);
    let most = distributions
        .iter()
        .map(|distribution| distribution.samples)
        .max()
        .unwrap_or(1);
    let mut plot = Plot::new(
        Axis::percentiles("percentile of requests", most as f64),
        Axis::log("latency, ms", times),
    );
    for Distribution {
        points,
        samples,
        series,
    } in distributions
    {
        let place = |point: &SpectrumPoint| {
            let rarity = (1.0 / (1.0 - point.quantile)).min(*samples as f64);
            (rarity, point.ms)
        };
        let sure = points
            .iter()
            .take_while(|point| point.quantile < 0.5 || samples_needed(point.quantile) <= *samples)
            .count();
        let (series, line) = (series % SERIES, |points: &[SpectrumPoint]| {
            points.iter().map(place).collect()
        });
        plot.layers.push(Layer::Line {
            points: line(&points[..sure]),
            series,
            class: "",
        });
        // From the last point that is sure, so that the line has no gap.
        plot.layers.push(Layer::Line {
            points: line(&points[sure.saturating_sub(1)..]),
            series,
            class: "faint",
        });
    }
    plot.svg("latency against percentile")
}

pub(super) const SERIES_NOTE: &str = "By the time at which requests were due: the median as a \
    thick line, the 99th percentile as a thin one, the slowest request as a dot.";

/// The axes of time series, the same for all of them.
pub(super) fn series_axes<'a>(all: impl Iterator<Item = &'a Series>) -> (Axis, Axis) {
    let (mut end, mut times) = (0.0_f64, Vec::new());
    for series in all {
        end = series
            .bins
            .iter()
            .fold(end, |end, bin| end.max(bin.at_s + series.bin_s));
        times.extend(series.bins.iter().flat_map(|bin| [bin.p50, bin.max]));
    }
    (
        Axis::up_to("time since the start, s", end),
        Axis::log("latency, ms", times.into_iter()),
    )
}

/// Latency over time.
pub(super) fn time_series(
    series: &Series,
    (x, y): (Axis, Axis),
    colour: usize,
    marks: Vec<Mark>,
    name: &str,
) -> String {
    let mut plot = Plot {
        height: 210.0,
        marks,
        ..Plot::new(x, y)
    };
    let colour = colour % SERIES;
    let at = |bin: &crate::compare::Bin| bin.at_s + series.bin_s / 2.0;
    let dots = series.bins.iter().map(|bin| (at(bin), bin.max)).collect();
    plot.layers.push(Layer::Dots {
        points: dots,
        series: colour,
    });
    // Where the strategy had a pause, its line has one.
    for stretch in series
        .bins
        .chunk_by(|one, next| next.at_s - one.at_s < 1.5 * series.bin_s)
    {
        let p50 = stretch.iter().map(|bin| (at(bin), bin.p50)).collect();
        let p99 = stretch.iter().map(|bin| (at(bin), bin.p99)).collect();
        plot.layers.push(Layer::Line {
            points: p99,
            series: colour,
            class: "thin",
        });
        plot.layers.push(Layer::Line {
            points: p50,
            series: colour,
            class: "solid",
        });
    }
    plot.svg(name)
}
