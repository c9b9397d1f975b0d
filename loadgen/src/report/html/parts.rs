//! Plots that several reports have.

use super::plot::{Axis, Layer, LineStyle, Mark, Plot};
use crate::compare::{Bin, Series, SpectrumPoint, samples_needed};

/// A distribution with its name and its number of samples.
pub(super) struct Distribution<'a> {
    pub(super) points: &'a [SpectrumPoint],
    pub(super) samples: u64,
    pub(super) series: usize,
}

pub(super) const SPECTRUM_NOTE: &str = "A share of the requests, on the horizontal axis, was \
    answered within the time on the vertical one. A line is faint where it rests on too few \
    requests for the percentile to be quoted.";

pub(super) fn spectrum(distributions: &[Distribution<'_>]) -> String {
    let points = distributions
        .iter()
        .flat_map(|distribution| distribution.points);
    let heights = points.map(|point| point.ms).collect();
    let samples = distributions
        .iter()
        .map(|distribution| distribution.samples)
        .max();
    let x = Axis::Percentiles {
        samples: samples.unwrap_or(1),
    };
    let mut plot = Plot::new(x, "latency, ms", heights);
    for distribution in distributions {
        let Distribution {
            points,
            samples,
            series,
        } = *distribution;
        let place = |point: &SpectrumPoint| {
            let rarity = (1.0 / (1.0 - point.quantile)).min(samples as f64);
            (rarity, point.ms)
        };
        let quotable = |point: &&SpectrumPoint| {
            point.quantile < 0.5 || samples_needed(point.quantile) <= samples
        };
        let sure = points.iter().take_while(quotable).count();
        // The faint line begins at the last sure point, so that there is no gap.
        for (points, style) in [
            (&points[..sure], LineStyle::SERIES),
            (&points[sure.saturating_sub(1)..], LineStyle::FAINT),
        ] {
            plot.layers.push(Layer::Line {
                points: points.iter().map(place).collect(),
                series,
                style,
            });
        }
    }
    plot.html("latency against percentile")
}

pub(super) const SERIES_NOTE: &str = "By the time at which requests were due: the median as a \
    thick line, the 99th percentile as a thin one, the slowest request as a dot.";

/// End in seconds and latencies of all time series of a page, which share their axes.
pub(super) fn series_extent<'a>(all: impl Iterator<Item = &'a Series>) -> (f64, Vec<f64>) {
    let (mut end, mut heights) = (0.0_f64, Vec::new());
    for series in all {
        let ends = series.bins.iter().map(|bin| bin.at_s + series.bin_s);
        end = ends.fold(end, f64::max);
        heights.extend(series.bins.iter().flat_map(|bin| [bin.p50, bin.max]));
    }
    (end, heights)
}

pub(super) fn time_series(
    series: &Series,
    (end, heights): &(f64, Vec<f64>),
    colour: usize,
    marks: Vec<Mark>,
    name: &str,
) -> String {
    let x = Axis::Linear {
        label: "time since the start, s".to_owned(),
        low: 0.0,
        high: if *end > 0.0 { *end } else { 1.0 },
    };
    let mut plot = Plot {
        height: 210,
        marks,
        ..Plot::new(x, "latency, ms", heights.clone())
    };
    let at = |bin: &Bin| bin.at_s + series.bin_s / 2.0;
    plot.layers.push(Layer::Dots {
        points: series.bins.iter().map(|bin| (at(bin), bin.max)).collect(),
        series: colour,
        radius: 2,
    });
    // Where the strategy paused, its line has a gap.
    let bins = series.bins.as_slice();
    for stretch in bins.chunk_by(|one, next| next.at_s - one.at_s < 1.5 * series.bin_s) {
        let line = |height: fn(&Bin) -> f64, style| Layer::Line {
            points: stretch.iter().map(|bin| (at(bin), height(bin))).collect(),
            series: colour,
            style,
        };
        plot.layers.push(line(|bin| bin.p99, LineStyle::THIN));
        plot.layers.push(line(|bin| bin.p50, LineStyle::THICK));
    }
    plot.html(name)
}
