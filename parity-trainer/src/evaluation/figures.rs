//! Plots of an evaluation.

use super::{Calibration, CodeEvaluation};
use crate::run::RunError;
use crate::run::plot::{Panel, Series, draw};

/// Confidence against the part that is right, as SVG.
///
/// # Errors
/// If the drawing fails.
pub fn reliability_plot(calibration: &Calibration) -> Result<String, RunError> {
    let measured = calibration
        .bins
        .iter()
        .map(|bin| (bin.confidence, bin.right))
        .collect();
    let panel = Panel {
        x: "confidence of the reconstruction".to_owned(),
        y: "part that is right".to_owned(),
        y_range: Some((0.0, 1.0)),
        series: vec![
            Series {
                label: "reconstructions".to_owned(),
                points: measured,
            },
            Series {
                label: "calibrated".to_owned(),
                points: vec![(0.0, 0.0), (1.0, 1.0)],
            },
        ],
    };
    draw(
        &format!("Reliability (ECE {:.3})", calibration.expected_error),
        &[panel],
    )
}

/// A_o against the part of reconstructed answers, of the trained parity models and of the untrained
/// control, as SVG; nothing where there are no labels.
///
/// # Errors
/// If the drawing fails.
pub fn overall_plot(
    trained: &CodeEvaluation,
    control: &CodeEvaluation,
) -> Result<Option<String>, RunError> {
    if trained.overall.is_empty() {
        return Ok(None);
    }
    let line = |label: &str, report: &CodeEvaluation| Series {
        label: label.to_owned(),
        points: report
            .overall
            .iter()
            .map(|point| (point.fraction, 100.0 * point.accuracy))
            .collect(),
    };
    let panel = Panel {
        x: "f, part of the answers that are reconstructed".to_owned(),
        y: "A_o, %".to_owned(),
        y_range: None,
        series: vec![
            line("parity models", trained),
            line("untrained control", control),
        ],
    };
    draw("Overall accuracy", &[panel]).map(Some)
}
