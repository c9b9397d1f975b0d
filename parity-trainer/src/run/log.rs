//! The log of a run, and the learning curve that it draws.

use serde::{Deserialize, Serialize};

use super::plot::{Panel, Series, draw};
use crate::Result;

/// The figures of a step, loss and agreement smoothed over those before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    pub step: u64,
    /// Passes over the training samples.
    pub epoch: f64,
    pub loss: f64,
    pub learning_rate: f64,
    pub gradient_norm: f64,
    /// Agreement with the deployed model, decoded (of a deployed model: with labels), part of 1.
    pub agreement: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_agreement: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Parity queries, or samples of a deployed model, a second.
    pub rows_per_second: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct CurveLabels<'a> {
    pub title: &'a str,
    pub loss: &'static str,
    pub rate: &'static str,
}

/// Draws loss and agreement over the steps as SVG.
pub(super) fn learning_curve(labels: &CurveLabels<'_>, records: &[LogRecord]) -> Result<String> {
    let line = |label, value: &dyn Fn(&LogRecord) -> Option<f64>| {
        let point = |record: &LogRecord| Some((record.step as f64, value(record)?));
        Series { label, points: records.iter().filter_map(point).collect() }
    };
    let log = |value: f64| (value > 0.0).then(|| value.log10());
    let percent = |part: f64| 100.0 * part;
    let loss = vec![
        line("training", &|record| log(record.loss)),
        line("validation", &|record| record.validation_loss.and_then(log)),
    ];
    let agreement = vec![
        line("training", &|record| Some(percent(record.agreement))),
        line("validation", &|record| record.validation_agreement.map(percent)),
    ];
    let (loss_label, rate_label) =
        (format!("log10 of the {}", labels.loss), format!("{}, %", labels.rate));
    let panel = |y, series| Panel { x: "step", y, y_range: None, series };
    draw(labels.title, &[panel(loss_label.as_str(), loss), panel(&rate_label, agreement)])
}
