//! The table at the end of a run.

use parity_trainer::evaluation::{CodeEvaluation, Estimate};

/// Prints label and value, the values aligned.
pub(crate) fn print(rows: &[(String, String)]) {
    let widths = rows.iter().map(|(label, _)| label.chars().count());
    let width = widths.max().unwrap_or_default();
    for (label, value) in rows {
        println!("{label:width$}  {value}");
    }
}

pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

pub(crate) fn evaluation(report: &CodeEvaluation) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(accuracy) = report.accuracy_deployed {
        rows.push(("A_a, deployed model".to_owned(), percent(accuracy)));
    }
    for losses in &report.by_losses {
        let missing = match losses.missing {
            1 => String::new(),
            missing => format!(" of {missing} missing"),
        };
        if let Some(accuracy) = losses.accuracy {
            rows.push((format!("A_d, reconstructed{missing}"), estimate(accuracy)));
        }
        if let Some(loss) = losses.loss {
            rows.push((format!("loss, A_a - A_d{missing}"), points(loss)));
        }
        rows.push((format!("agreement{missing}"), estimate(losses.agreement)));
    }
    rows
}

/// A difference of parts of 1 in points, with its interval.
fn points(loss: Estimate) -> String {
    let value = 100.0 * loss.value;
    match loss.interval.map(|(low, high)| (100.0 * low, 100.0 * high)) {
        None => format!("{value:.2} points"),
        Some((low, high)) => {
            format!("{value:.2} points  (95 %, paired: {low:.2} to {high:.2})")
        }
    }
}

/// A part of 1 as a percentage, with its interval.
fn estimate(estimate: Estimate) -> String {
    let value = percent(estimate.value);
    match estimate
        .interval
        .map(|(low, high)| (100.0 * low, 100.0 * high))
    {
        None => value,
        Some((low, high)) => format!("{value}  (95 %: {low:.1} to {high:.1})"),
    }
}
