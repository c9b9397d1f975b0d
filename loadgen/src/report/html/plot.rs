//! Plots as SVG text.
//!
//! Written here and not by a plotting crate: colours and fonts then are the page's style sheet's,
//! so that one file is right in light, dark and print, and percentile axes are not what such crates
//! have.

use super::page::escape;
use super::scale::Axis;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 46.0;
const WIDTH: f64 = 880.0;
/// Height of a line of labels.
const LINE: f64 = 16.0;
/// Width of a character of a label, on average.
const CHARACTER: f64 = 6.6;
/// Rows of fault labels; further faults have a band only.
const MARK_ROWS: usize = 3;

/// Plot on a page.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) height: f64,
    pub(super) layers: Vec<Layer>,
    pub(super) marks: Vec<Mark>,
}

/// Something drawn in a plot. `series` is the number of the colour.
#[derive(Debug)]
pub(super) enum Layer {
    /// A line, thin or faint if `class` says so.
    Line {
        points: Vec<(f64, f64)>,
        series: usize,
        class: &'static str,
    },
    /// Small dots at points.
    Dots {
        points: Vec<(f64, f64)>,
        series: usize,
    },
    /// A range of `y`.
    Whisker {
        x: f64,
        low: f64,
        high: f64,
        series: usize,
    },
    /// Large points with names.
    Named {
        points: Vec<(f64, f64, String, usize)>,
    },
    /// A vertical line with a name at its foot.
    Rule {
        x: f64,
        label: String,
        series: usize,
    },
}

/// A stretch of `x`, named above the plot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub(super) from: f64,
    pub(super) until: Option<f64>,
    pub(super) label: String,
}

impl Plot {
    pub(super) fn new(x: Axis, y: Axis) -> Self {
        Self {
            x,
            y,
            height: 380.0,
            layers: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// The plot as an `svg` element; `name` is for those who cannot see it.
    pub(super) fn svg(&self, name: &str) -> String {
        let (marks, rows) = self.marks();
        let top = TOP + rows as f64 * LINE;
        let frame = Frame {
            top,
            bottom: top + self.height - TOP - BOTTOM,
        };
        let height = frame.bottom + BOTTOM;
        let layers: String = self
            .layers
            .iter()
            .map(|layer| self.layer(layer, &frame))
            .collect();
        let marks: String = marks
            .iter()
            .map(|(mark, row)| self.mark(mark, *row, &frame))
            .collect();
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
                aria-label=\"{}\">{marks}{}{layers}</svg>\n",
            escape(name),
            self.axes(&frame)
        )
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64, frame: &Frame) -> f64 {
        frame.bottom - self.y.place(value) * (frame.bottom - frame.top)
    }

    fn axes(&self, frame: &Frame) -> String {
        let Frame { top, bottom } = *frame;
        let right = WIDTH - RIGHT;
        let columns = self.x.ticks.iter().map(|(value, label)| {
            let x = self.x(*value);
            format!(
                "<path class=\"grid\" d=\"M{x:.1} {top:.1}V{bottom:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 17.0
            )
        });
        let rows = self.y.ticks.iter().map(|(value, label)| {
            let y = self.y(*value, frame);
            format!(
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 7.0,
                y + 4.5
            )
        });
        let (across, middle) = ((LEFT + right) / 2.0, (top + bottom) / 2.0);
        let lines: String = columns.chain(rows).collect();
        format!(
            "{lines}<path class=\"axis\" d=\"M{LEFT} {top:.1}V{bottom:.1}H{right}\"/>\
             <text class=\"label\" x=\"{across:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(15 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            bottom + 38.0,
            escape(&self.x.label),
            escape(&self.y.label)
        )
    }

    fn layer(&self, layer: &Layer, frame: &Frame) -> String {
        match layer {
            Layer::Line {
                points,
                series,
                class,
            } => {
                let steps = points.iter().enumerate().map(|(number, (x, y))| {
                    let command = if number == 0 { 'M' } else { 'L' };
                    format!("{command}{:.1} {:.1}", self.x(*x), self.y(*y, frame))
                });
                format!(
                    "<path class=\"line {class} s{series}\" d=\"{}\"/>",
                    steps.collect::<String>()
                )
            }
            Layer::Dots { points, series } => {
                let dots = points.iter().map(|(x, y)| {
                    let (x, y) = (self.x(*x), self.y(*y, frame));
                    format!("<circle class=\"dot s{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>")
                });
                dots.collect()
            }
            Layer::Whisker {
                x,
                low,
                high,
                series,
            } => {
                let (x, low, high) = (self.x(*x), self.y(*low, frame), self.y(*high, frame));
                let (left, right) = (x - 4.0, x + 4.0);
                format!(
                    "<path class=\"line thin s{series}\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} \
                        {low:.1}H{right:.1}\
                     M{left:.1} {high:.1}H{right:.1}\"/>"
                )
            }
            Layer::Named { points } => self.named(points, frame),
            Layer::Rule { x, label, series } => {
                let (x, foot) = (self.x(*x), frame.bottom - 6.0 - LINE * *series as f64);
                let (anchor, at) = beside(x);
                format!(
                    "<path class=\"line rule s{series}\" d=\"M{x:.1} {:.1}V{:.1}\"/>\
                     <text class=\"t{series}\" x=\"{at:.1}\" y=\"{foot:.1}\" \
                     text-anchor=\"{anchor}\">{}</text>",
                    frame.top,
                    frame.bottom,
                    escape(label)
                )
            }
        }
    }

    /// Points whose names stand beside them, moved down where they would cover each other.
    fn named(&self, points: &[(f64, f64, String, usize)], frame: &Frame) -> String {
        let mut places: Vec<(f64, f64, usize)> = points
            .iter()
            .enumerate()
            .map(|(number, (x, y, ..))| (self.x(*x), self.y(*y, frame), number))
            .collect();
        places.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut taken: Vec<(f64, f64, f64)> = Vec::new();
        let drawn = places.into_iter().map(|(x, y, number)| {
            let (_, _, name, series) = &points[number];
            let width = name.chars().count() as f64 * CHARACTER;
            let (anchor, at) = beside(x);
            let left = if anchor == "start" { at } else { at - width };
            let mut line = y + 4.5;
            // A line below another may come out a rounding error nearer than LINE, and would be
            // moved for ever.
            while let Some(other) = taken.iter().find(|(other_left, other_right, other_line)| {
                *other_left < left + width
                    && left < *other_right
                    && (line - other_line).abs() < LINE - 0.5
            }) {
                line = other.2 + LINE;
            }
            taken.push((left, left + width, line));
            format!(
                "<circle class=\"point s{series}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>\
                 <text class=\"t{series} name\" x=\"{at:.1}\" y=\"{line:.1}\" \
                 text-anchor=\"{anchor}\">{}</text>",
                escape(name)
            )
        });
        drawn.collect()
    }

    /// Each mark with the row of its label, and how many rows there are.
    fn marks(&self) -> (Vec<(&Mark, Option<usize>)>, usize) {
        let mut marks: Vec<&Mark> = self.marks.iter().collect();
        marks.sort_by(|one, other| one.from.total_cmp(&other.from));
        let mut ends: Vec<f64> = Vec::new();
        let placed = marks.into_iter().map(|mark| {
            let (left, right) = self.label_of(mark);
            let row = ends
                .iter()
                .position(|end| *end < left)
                .or((ends.len() < MARK_ROWS).then_some(ends.len()));
            match row {
                Some(row) if row < ends.len() => ends[row] = right,
                Some(_) => ends.push(right),
                None => {}
            }
            (mark, row)
        });
        let placed = placed.collect();
        (placed, ends.len())
    }

    /// Left and right end of a mark's label.
    fn label_of(&self, mark: &Mark) -> (f64, f64) {
        let width = mark.label.chars().count() as f64 * CHARACTER + 8.0;
        let left = self.x(mark.from).min(WIDTH - width);
        (left, left + width)
    }

    fn mark(&self, mark: &Mark, row: Option<usize>, frame: &Frame) -> String {
        let (from, until) = (self.x(mark.from), self.x(mark.until.unwrap_or(mark.from)));
        let width = (until - from).max(1.5);
        let text = row.map(|row| {
            let (left, y) = (self.label_of(mark).0, TOP + LINE * row as f64 + 10.0);
            format!(
                "<text class=\"fault\" x=\"{left:.1}\" y=\"{y:.1}\">{}</text>",
                escape(&mark.label)
            )
        });
        format!(
            "<rect class=\"fault\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
                height=\"{:.1}\"><title>{}</title></rect>{}",
            frame.top,
            frame.bottom - frame.top,
            escape(&mark.label),
            text.unwrap_or_default()
        )
    }
}

/// Where the inside of a plot is.
struct Frame {
    top: f64,
    bottom: f64,
}

/// Anchor and place of a name beside the point at `x`, on the side with more room.
fn beside(x: f64) -> (&'static str, f64) {
    if x < WIDTH * 0.7 {
        ("start", x + 10.0)
    } else {
        ("end", x - 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_one_place_stand_below_each_other() {
        // Places on either side of rounding, where a name one line below another is not quite one
        // line away.
        for offset in 0..1000 {
            let latency = 40.0 + f64::from(offset) * 0.037;
            let points = (0..7)
                .map(|number| (50.0, latency, format!("strategy {number}"), number))
                .collect();
            let mut plot = Plot::new(
                Axis::linear("cost, %", [0.0, 100.0].into_iter(), true),
                Axis::linear("p99.9, ms", [0.0, 100.0].into_iter(), true),
            );
            plot.layers.push(Layer::Named { points });
            let svg = plot.svg("cost against latency");
            let mut lines: Vec<f64> = svg
                .split("name\" x=")
                .skip(1)
                .filter_map(|text| text.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
                .collect();
            assert_eq!(lines.len(), 7);
            lines.sort_by(f64::total_cmp);
            assert!(
                lines.windows(2).all(|pair| pair[1] - pair[0] > LINE - 1.0),
                "{lines:?}"
            );
        }
    }
}
