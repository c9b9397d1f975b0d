//! The learning curve: loss and agreement over the steps.

use super::plot::{Panel, Series, draw};
use super::{LogRecord, RunError};

#[derive(Debug, Clone, Copy)]
pub struct CurveLabels<'a> {
    pub title: &'a str,
    pub loss: &'static str,
    pub rate: &'static str,
}

/// Draws the records of a run as SVG.
///
/// # Errors
/// If the drawing fails.
pub fn learning_curve(labels: &CurveLabels<'_>, records: &[LogRecord]) -> Result<String, RunError> {
    let line = |label: &str, value: &dyn Fn(&LogRecord) -> Option<f64>| Series {
        label: label.to_owned(),
        points: records
            .iter()
            .filter_map(|record| Some((record.step as f64, value(record)?)))
            .collect(),
    };
    let log = |value: f64| (value > 0.0).then(|| value.log10());
    let loss = Panel {
        x: "step".to_owned(),
        y: format!("log10 of the {}", labels.loss),
        y_range: None,
        series: vec![
            line("training", &|record| log(record.loss)),
            line("validation", &|record| record.validation_loss.and_then(log)),
        ],
    };
    let agreement = Panel {
        x: "step".to_owned(),
        y: format!("{}, %", labels.rate),
        y_range: None,
        series: vec![
            line("training", &|record| Some(100.0 * record.agreement)),
            line("validation", &|record| {
                record.validation_agreement.map(|part| 100.0 * part)
            }),
        ],
    };
    draw(labels.title, &[loss, agreement])
}
