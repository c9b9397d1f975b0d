//! The learning curve: loss and agreement over the steps.

use super::plot::{Panel, Series, draw};
use super::{LogRecord, RunError};

/// Draws the records of a run named `title` as SVG.
///
/// # Errors
/// If the drawing fails.
pub fn learning_curve(title: &str, records: &[LogRecord]) -> Result<String, RunError> {
    let line = |label: &str, value: &dyn Fn(&LogRecord) -> Option<f64>| Series {
        label: label.to_owned(),
        points: records.iter().filter_map(|record| Some((record.step as f64, value(record)?))).collect(),
    };
    let log = |value: f64| (value > 0.0).then(|| value.log10());
    let loss = Panel {
        x: "step".to_owned(),
        y: "log10 of the mean squared error".to_owned(),
        y_range: None,
        series: vec![
            line("training", &|record| log(record.loss)),
            line("validation", &|record| record.validation_loss.and_then(log)),
        ],
    };
    let agreement = Panel {
        x: "step".to_owned(),
        y: "agreement, %".to_owned(),
        y_range: None,
        series: vec![
            line("training", &|record| Some(100.0 * record.agreement)),
            line("validation", &|record| record.validation_agreement.map(|part| 100.0 * part)),
        ],
    };
    draw(title, &[loss, agreement])
}
