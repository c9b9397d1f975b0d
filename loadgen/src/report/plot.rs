//! Plots of latency as SVG elements, drawn by `plotters`.
//!
//! Colours in the SVG are those of paper; the page's style sheet replaces them in dark mode, and
//! draws some series dashed.

use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::page::{SERIES, escape};

const COLOURS: [RGBColor; SERIES] = [
    RGBColor(27, 29, 32),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(184, 127, 0),
    RGBColor(86, 180, 233),
];
const FAULT: RGBColor = RGBColor(230, 159, 0);
const GRID: RGBColor = RGBColor(217, 220, 225);
const AXIS: RGBColor = RGBColor(86, 91, 99);

const WIDTH: u32 = 880;
const LEFT: u32 = 66;
const RIGHT: u32 = 18;
/// Over more factors of ten than this, only powers of ten are ticks.
const DECADES_WITH_STEPS: f64 = 3.3;

type Point = (f64, f64);
type Height = WithKeyPoints<LogCoord<f64>>;
type Chart<'a, X> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Height>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Latency in milliseconds, on a logarithmic y axis, against `x`.
#[derive(Debug)]
pub(super) struct Plot {
    x: Axis,
    heights: Vec<f64>,
    pub(super) height: u32,
    /// Each with the number of its colour.
    layers: Vec<(usize, Shape)>,
    /// Stretches of `x` that are coloured.
    pub(super) bands: Vec<(f64, f64)>,
}

#[derive(Debug)]
pub(super) enum Axis {
    /// From the start of the run or the comparison to an end.
    Seconds(f64),
    /// Percentiles of so many samples at `1 / (1 - quantile)`, logarithmic.
    Percentiles(u64),
}

#[derive(Debug)]
pub(super) enum Shape {
    /// Points, width in pixels by which the style sheet finds lines to dash, and opacity.
    Line(Vec<Point>, u32, f64),
    Dots(Vec<Point>, u32),
}

impl Plot {
    pub(super) fn new(x: Axis, heights: Vec<f64>) -> Self {
        Self { x, heights, height: 380, layers: Vec::new(), bands: Vec::new() }
    }

    pub(super) fn push(&mut self, series: usize, shape: Shape) {
        self.layers.push((series, shape));
    }

    pub(super) fn html(&self, name: &str) -> String {
        let mut svg = String::new();
        let drawn = match &self.x {
            Axis::Seconds(end) => {
                self.draw(&mut svg, "time since the start, s", 0.0..*end, &|value| number(*value))
            }
            Axis::Percentiles(samples) => {
                let high = (*samples as f64).max(10.0) * 1.1;
                let axis = (1.0..high).log_scale().with_key_points(percentile_ticks(high));
                self.draw(&mut svg, "percentile of requests", axis, &percentile)
            }
        };
        if let Err(error) = drawn {
            svg = format!("cannot draw: {}", escape(&error.to_string()));
        }
        let name = escape(name);
        format!("<div role=\"img\" aria-label=\"{name}\">{svg}</div>\n")
    }

    fn draw<X>(
        &self,
        svg: &mut String,
        x_label: &str,
        x: X,
        x_format: &dyn Fn(&f64) -> String,
    ) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let x: X::CoordDescType = x.into();
        let ends = x.range();
        let pixel = (ends.end - ends.start) / f64::from(WIDTH - LEFT - RIGHT);
        let root = SVGBackend::with_string(svg, (WIDTH, self.height)).into_drawing_area();
        let (low, high) = log_range(&self.heights);
        let mut chart = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(RIGHT)
            .x_label_area_size(46)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(x, (low..high).log_scale().with_key_points(log_ticks(low, high)))?;
        let bands = self.bands.iter().map(|(from, until)| {
            let end = until.max(from + 1.5 * pixel);
            Rectangle::new([(*from, low), (end, high)], FAULT.mix(0.3).filled())
        });
        chart.draw_series(bands)?;
        chart
            .configure_mesh()
            .x_desc(x_label)
            .y_desc("latency, ms")
            .x_label_formatter(x_format)
            .y_label_formatter(&|value| number(*value))
            .x_labels(9)
            .label_style(("sans-serif", 16))
            .axis_desc_style(("sans-serif", 16).into_font().color(&AXIS))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .draw()?;
        for (series, shape) in &self.layers {
            shape.draw(*series, &mut chart)?;
        }
        root.present()
    }
}

impl Shape {
    fn draw<X>(&self, series: usize, chart: &mut Chart<'_, X>) -> Drawn
    where
        X: Ranged<ValueType = f64>,
    {
        let (across, up) = (chart.x_range(), chart.y_range());
        let inside = |(x, y): Point| (x.clamp(across.start, across.end), y.clamp(up.start, up.end));
        let colour = &COLOURS[series % SERIES];
        match self {
            Self::Line(points, width, opacity) => {
                let style = colour.mix(*opacity).stroke_width(*width);
                chart.draw_series(LineSeries::new(points.iter().copied().map(inside), style))?;
            }
            Self::Dots(points, radius) => {
                let dot = |point| Circle::new(inside(point), *radius, colour.mix(0.8).filled());
                chart.draw_series(points.iter().copied().map(dot))?;
            }
        }
        Ok(())
    }
}

/// Ends of a logarithmic axis: the ticks around the positive ones of `values`.
fn log_range(values: &[f64]) -> (f64, f64) {
    let positive = values.iter().copied().filter(|value| value.is_finite() && *value > 0.0);
    let least = positive.clone().reduce(f64::min).unwrap_or(1.0);
    let greatest = positive.reduce(f64::max).unwrap_or(10.0);
    let below = steps().rev().find(|step| *step <= least * 1.0001);
    let above = steps().find(|step| *step >= greatest * 0.9999);
    let (low, high) = (below.unwrap_or(least), above.unwrap_or(greatest));
    (low, if high <= low { low * 10.0 } else { high })
}

fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let coarse = (high / low).log10() > DECADES_WITH_STEPS;
    let wanted = |step: &f64| {
        let power = step.log10();
        (low * 0.9999..=high * 1.0001).contains(step)
            && (!coarse || (power - power.round()).abs() < 1e-6)
    };
    steps().filter(wanted).collect()
}

/// 1, 2 and 5 times the powers of ten.
fn steps() -> impl DoubleEndedIterator<Item = f64> {
    (-7..13).flat_map(|power| [1.0, 2.0, 5.0].map(|mantissa| mantissa * 10_f64.powi(power)))
}

fn percentile_ticks(high: f64) -> Vec<f64> {
    let nines = (1..9).map(|nines| 10_f64.powi(nines));
    [1.0, 2.0].into_iter().chain(nines).filter(|tick| *tick <= high).collect()
}

/// Text of the percentile at `1 / (1 - quantile)`.
fn percentile(place: &f64) -> String {
    let decimals = (place.log10().round() - 2.0).max(0.0) as usize;
    format!("{:.decimals$} %", 100.0 - 100.0 / place)
}

/// A number with no more digits than it needs, and its thousands apart.
fn number(value: f64) -> String {
    if value < 1000.0 || value.fract() != 0.0 {
        return format!("{value:.7}").trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        let log = |values: &[f64]| {
            let (low, high) = log_range(values);
            let ticks: Vec<String> = log_ticks(low, high).into_iter().map(number).collect();
            ticks.join(" ")
        };
        assert_eq!(log(&[3.0, 60.0]), "2 5 10 20 50 100");
        assert_eq!(log(&[0.3, 6000.0]), "1 10 100 1,000 10,000");
        let ticks = percentile_ticks(20_000.0);
        let ticks: Vec<String> = ticks.iter().map(percentile).collect();
        assert_eq!(ticks.join(" "), "0 % 50 % 90 % 99 % 99.9 % 99.99 %");
    }

    proptest! {
        #[test]
        fn any_values_make_a_plot_with_every_coordinate_inside(
            values in proptest::collection::vec(-1e9_f64..1e9, 0..5),
        ) {
            let mut plot = Plot::new(Axis::Seconds(1e9), values.clone());
            let points = values.iter().map(|value| (*value, *value)).collect();
            plot.push(9, Shape::Dots(points, 2));
            let html = plot.html("any");
            prop_assert!(html.contains("</svg>") && !html.contains("NaN"), "{html}");
            let ys = html.split(" cy=\"").skip(1);
            for y in ys.filter_map(|text| text.split('"').next()?.parse::<u32>().ok()) {
                prop_assert!((10..=334).contains(&y), "{y}");
            }
        }
    }
}
