//! Printed and written results.

use std::fmt::Write as _;

use crate::data::DataSet;
use crate::{Score, TrainSettings, TrainingOutcome};
use serde_json::json;

pub(crate) fn data(data: &DataSet) -> String {
    let per_row = data.train.non_zeros() as f64 / data.train.len().max(1) as f64;
    format!(
        "data       {}: {} features, {} rows to learn from ({per_row:.1} values each), {} held out",
        data.name,
        data.features,
        data.train.len(),
        data.held_out.len()
    )
}

/// The best that any model could do on the held-out rows.
fn best(data: &DataSet) -> Option<Score> {
    data.truth
        .as_ref()
        .map(|truth| Score::new(truth, data.held_out.labels()))
}

pub(crate) fn outcome(data: &DataSet, outcome: &TrainingOutcome) -> String {
    let TrainingOutcome {
        score,
        rows,
        progressive_loss,
        non_zero,
        weights,
        seconds,
        idle,
        payload,
        ..
    } = outcome;
    let mut text = String::new();
    // Writing to a string never fails.
    if outcome.stopped {
        let _ = writeln!(
            text,
            "ended early: what follows is the model as far as it was learned"
        );
    }
    let _ = writeln!(
        text,
        "held out   log loss {:.4}, AUC {:.4}, accuracy {:.2} %",
        score.log_loss,
        score.auc,
        100.0 * score.accuracy
    );
    if let Some(best) = best(data) {
        let Score {
            log_loss,
            auc,
            accuracy,
        } = best;
        let accuracy = 100.0 * accuracy;
        let _ = writeln!(
            text,
            "at best    log loss {log_loss:.4}, AUC {auc:.4}, accuracy {accuracy:.2} %"
        );
    }
    let _ = writeln!(
        text,
        "learning   log loss {progressive_loss:.4} of each row before it was learned from"
    );
    let share = 100.0 * *non_zero as f64 / (*weights).max(1) as f64;
    let _ = writeln!(
        text,
        "weights    {non_zero} of {weights} are not 0 ({share:.2} %)"
    );
    let speed = *rows as f64 / seconds.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        text,
        "time       {seconds:.1} s, {speed:.0} rows/s, workers idle {:.1} % of it",
        100.0 * idle
    );
    let left_out = 100.0 * (1.0 - payload.rows_sent as f64 / payload.rows.max(1) as f64);
    let _ = write!(
        text,
        "keys and values: {} asked, {} answered, {} pushed; KKT left out {left_out:.1} % of the \
            gradients",
        megabytes(payload.asked),
        megabytes(payload.answered),
        megabytes(payload.pushed)
    );
    text
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

pub(crate) fn json(data: &DataSet, settings: &TrainSettings, outcome: &TrainingOutcome) -> String {
    let document = json!({
        "data": {
            "name": data.name,
            "features": data.features,
            "train_rows": data.train.len(),
            "train_values": data.train.non_zeros(),
            "held_out_rows": data.held_out.len(),
        },
        "settings": format!("{settings:?}"),
        "best": best(data),
        "outcome": outcome,
        "payload_bytes": outcome.payload.total(),
    });
    format!("{document:#}\n")
}
