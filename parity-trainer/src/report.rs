//! The table at the end of a run.

/// Prints label and value, the values aligned.
pub(crate) fn print(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    for (label, value) in rows {
        println!("{label:width$}  {value}");
    }
}

/// A part of 1 as a percentage.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}
