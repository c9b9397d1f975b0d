//! Line charts as SVG.

use plotters::prelude::*;

use super::RunError;

/// A line with its name.
#[derive(Debug, Clone)]
pub struct Series {
    pub label: String,
    /// Its points, in order of x.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
pub struct Panel {
    /// Label of the x axis, with its unit.
    pub x: String,
    /// Label of the y axis, with its unit.
    pub y: String,
    /// The y axis's ends; as the points have it where there are none.
    pub y_range: Option<(f64, f64)>,
    pub series: Vec<Series>,
}

const SIZE: (u32, u32) = (760, 300);
const COLOURS: [RGBColor; 5] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 24),
    RGBColor(44, 130, 60),
    RGBColor(120, 80, 160),
    RGBColor(90, 90, 90),
];

/// Draws `panels` one below the other under `title`.
///
/// # Errors
/// If the drawing fails.
pub fn draw(title: &str, panels: &[Panel]) -> Result<String, RunError> {
    let failed = |error: &dyn std::fmt::Display| RunError::Plot(error.to_string());
    let mut svg = String::new();
    {
        let rows = panels.len().max(1);
        let height = SIZE.1 * u32::try_from(rows).unwrap_or(1) + 40;
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| failed(&error))?;
        let body = root
            .titled(title, ("sans-serif", 18))
            .map_err(|error| failed(&error))?;
        for (panel, area) in panels.iter().zip(body.split_evenly((rows, 1))) {
            draw_panel(panel, &area).map_err(|error| failed(&error))?;
        }
        root.present().map_err(|error| failed(&error))?;
    }
    Ok(svg)
}

fn draw_panel<B: DrawingBackend>(
    panel: &Panel,
    area: &DrawingArea<B, plotters::coord::Shift>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let points = || {
        panel
            .series
            .iter()
            .flat_map(|series| &series.points)
            .filter(|(x, y)| x.is_finite() && y.is_finite())
    };
    let (left, right) = span(points().map(|point| point.0));
    let (bottom, top) = panel
        .y_range
        .unwrap_or_else(|| span(points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d(left..right, bottom..top)?;
    chart
        .configure_mesh()
        .x_desc(&panel.x)
        .y_desc(&panel.y)
        .x_labels(9)
        .y_labels(7)
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        let line = series
            .points
            .iter()
            .copied()
            .filter(|(x, y)| x.is_finite() && y.is_finite());
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(&series.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()
}

/// Least and greatest value, apart even where all are one.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    );
    match () {
        () if least < most => (least, most),
        () if least.is_finite() => (least - 0.5, least + 0.5),
        () => (0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_and_lines_are_named() {
        let line = |label: &str, points: &[(f64, f64)]| Series {
            label: label.into(),
            points: points.to_vec(),
        };
        let panel = |series| Panel {
            x: "step".into(),
            y: "loss".into(),
            y_range: None,
            series,
        };
        let series = vec![
            line("training", &[(0.0, 1.0), (1.0, f64::NAN), (2.0, 0.5)]),
            line("validation", &[]),
        ];
        let svg = draw("a run", &[panel(series), panel(Vec::new())]).unwrap();
        for word in [
            "<svg",
            "a run",
            "step",
            "loss",
            "training",
            "validation",
            "polyline",
        ] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
