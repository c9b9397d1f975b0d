//! Line charts as SVG.

use plotters::prelude::*;

use crate::{Result, TrainError};

#[derive(Debug, Clone)]
pub struct Series<'a> {
    pub label: &'a str,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
pub struct Panel<'a> {
    pub x: &'a str,
    pub y: &'a str,
    /// The y axis's ends; as the points have it where there are none.
    pub y_range: Option<(f64, f64)>,
    pub series: Vec<Series<'a>>,
}

const SIZE: (u32, u32) = (760, 300);
const COLOURS: [RGBColor; 2] = [RGBColor(31, 119, 180), RGBColor(214, 96, 24)];

/// Draws `panels` one below the other under `title`.
pub fn draw(title: &str, panels: &[Panel<'_>]) -> Result<String> {
    let mut svg = String::new();
    let height = SIZE.1 * panels.len() as u32 + 40;
    let root = SVGBackend::with_string(&mut svg, (SIZE.0, height)).into_drawing_area();
    let drawn = draw_on(&root, title, panels).and_then(|()| root.present());
    drop(root);
    drawn.map_err(|error| TrainError::Failed(format!("cannot draw: {error}")))?;
    Ok(svg)
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Area<B> = DrawingArea<B, plotters::coord::Shift>;

fn draw_on<B: DrawingBackend>(root: &Area<B>, title: &str, panels: &[Panel<'_>]) -> Drawn<B> {
    root.fill(&WHITE)?;
    let body = root.titled(title, ("sans-serif", 18))?;
    for (panel, area) in panels.iter().zip(body.split_evenly((panels.len().max(1), 1))) {
        draw_panel(panel, &area)?;
    }
    Ok(())
}

fn draw_panel<B: DrawingBackend>(panel: &Panel<'_>, area: &Area<B>) -> Drawn<B> {
    let is_finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
    let points =
        || panel.series.iter().flat_map(|series| &series.points).copied().filter(is_finite);
    let (left, right) = span(points().map(|point| point.0));
    let (bottom, top) = panel.y_range.unwrap_or_else(|| span(points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d(left..right, bottom..top)?;
    chart
        .configure_mesh()
        .x_desc(panel.x)
        .y_desc(panel.y)
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for (series, colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        let line = series.points.iter().copied().filter(is_finite);
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(series.label)
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
fn span(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(f64::NEG_INFINITY, f64::max);
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
    fn drawing_names_its_axes_and_lines() {
        let line = |label, points: &[(f64, f64)]| Series { label, points: points.to_vec() };
        let panel = |series| Panel { x: "step", y: "loss", y_range: None, series };
        let series = vec![
            line("training", &[(0.0, 1.0), (1.0, f64::NAN), (2.0, 0.5)]),
            line("validation", &[]),
        ];
        let svg = draw("a run", &[panel(series), panel(Vec::new())]).unwrap();
        for word in ["<svg", "a run", "step", "loss", "training", "validation", "polyline"] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
