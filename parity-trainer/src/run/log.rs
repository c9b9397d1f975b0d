//! One line of a run's log.

use serde::{Deserialize, Serialize};

/// The figures of the steps since the record before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    pub step: u64,
    /// Passes over the training samples.
    pub epoch: f64,
    /// Mean loss of the steps.
    pub loss: f64,
    /// Learning rate of the last one.
    pub learning_rate: f64,
    /// Length of the last one's gradient, before clipping.
    pub gradient_norm: f64,
    /// Mean agreement with the deployed model, after decoding, part of 1; of a deployed model,
    /// with the labels.
    pub agreement: f64,
    /// Agreement on validation, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_agreement: Option<f64>,
    /// Loss on validation, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Parity queries, or samples of a deployed model, a second.
    pub rows_per_second: f64,
}
