//! The table at the end of a run.

use parity_trainer::evaluation::{CodeEvaluation, Estimate, percent};

pub(crate) fn print(rows: &[(String, String)]) {
    let width = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    for (label, value) in rows {
        println!("{label:width$}  {value}");
    }
}

pub(crate) fn evaluation(report: &CodeEvaluation) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if let Some(accuracy) = report.accuracy_deployed {
        rows.push(("A_a, deployed model".to_owned(), percent(accuracy, 1)));
    }
    for losses in &report.by_losses {
        let mut told = |what: &str, figure: Option<Estimate>, decimals: usize, unit: &str| {
            let missing = match losses.missing {
                1 => String::new(),
                missing => format!(" of {missing} missing"),
            };
            let interval = figure.and_then(|figure| figure.interval).map_or("", |_| " [95 %]");
            let label = format!("{what}{missing}{interval}");
            rows.extend(figure.map(|figure| (label, figure.hundredths(decimals, unit))));
        };
        told("A_d, reconstructed", losses.accuracy, 1, " %");
        told("loss, A_a - A_d", losses.loss, 2, " points");
        told("agreement", Some(losses.agreement), 1, " %");
    }
    rows
}
