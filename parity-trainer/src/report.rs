//! The table at the end of a run.

use parity_trainer::evaluation::{CodeEvaluation, Estimate};

/// Prints label and value, the values aligned.
pub(crate) fn print(rows: &[(impl AsRef<str>, String)]) {
    let width = rows
        .iter()
        .map(|(label, _)| label.as_ref().chars().count())
        .max()
        .unwrap_or_default();
    for (label, value) in rows {
        println!("{:width$}  {value}", label.as_ref());
    }
}

/// A part of 1 as a percentage.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

/// Rows for an evaluation's main figures.
pub(crate) fn evaluation(report: &CodeEvaluation) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(accuracy) = report.accuracy_deployed {
        rows.push(("A_a, deployed model".to_owned(), percent(accuracy)));
    }
    for losses in &report.by_losses {
        let missing = if losses.missing == 1 {
            String::new()
        } else {
            format!(" of {} missing", losses.missing)
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

/// A difference of parts of 1 in points, with where it probably lies.
fn points(loss: Estimate) -> String {
    let points = |part: f64| format!("{:.2}", 100.0 * part);
    match loss.interval {
        None => format!("{} points", points(loss.value)),
        Some((low, high)) => {
            format!(
                "{} points  (95 %, paired: {} to {})",
                points(loss.value),
                points(low),
                points(high)
            )
        }
    }
}

/// A part of 1 as a percentage, with where it probably lies.
pub(crate) fn estimate(estimate: Estimate) -> String {
    match estimate.interval {
        None => percent(estimate.value),
        Some((low, high)) => {
            format!(
                "{}  (95 %: {:.1} to {:.1})",
                percent(estimate.value),
                100.0 * low,
                100.0 * high
            )
        }
    }
}
