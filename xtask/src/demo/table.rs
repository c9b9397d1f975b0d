//! The demo's result for people.

use super::faults::{self, PARITY, Planned, REPLICAS};
use crate::models::{figure, shown};
use crate::prelude::*;

/// Rows of the table: name, place in the report, digits.
const ROWS: &str = "\
requests sent|/counts/sent|0
answered with the exact prediction|/provenance/exact/count|0
answered with a reconstruction|/provenance/reconstructed/count|0
answered with an error|/counts/failed|0
unanswered|/counts/unanswered|0
accuracy of exact predictions|/provenance/exact/accuracy/accuracy|1%
accuracy of reconstructions|/provenance/reconstructed/accuracy/accuracy|1%
accuracy of all answers|/accuracy/accuracy|1%
p50, ms|/latency/all/p50|2
p99, ms|/latency/all/p99|2
p99.9, ms|/latency/all/p99_9|2
worst, ms|/latency/all/max|2";

pub(crate) fn render(plain: &Value, coded: &Value, faults: &[Planned]) -> Result<String> {
    let mut text = format!(
        "Faults, the same in both runs: {}; one replica killed half-way.\nRequests are sent at \
         constant intervals, not at random. Without coding {REPLICAS} instances serve, with coding \
         {}: {PARITY} parity instances beside the {REPLICAS} replicas.\n\n{:<44}{:>14}{:>14}\n",
        faults::describe(faults),
        REPLICAS + PARITY,
        "",
        "without coding",
        "with coding"
    );
    for row in ROWS.lines() {
        let cells: Vec<&str> = row.split('|').collect();
        let (name, pointer, digits) = (cells[0], cells[1], cells[2]);
        let [plain, coded] = [plain, coded].map(|report| shown(report, pointer, digits));
        text += &format!("{name:<44}{plain:>14}{coded:>14}\n");
    }
    let p99_9 = |report| figure(report, "/latency/all/p99_9");
    let times = p99_9(plain)? / p99_9(coded)?;
    text += &format!("\np99.9 is {times:.1} times lower with coding.\n");
    if plain["valid"] != true || coded["valid"] != true {
        text += "A run fell behind its schedule (busy machine): run it again.\n";
    }
    text += "Latency counts from the planned send time; a request without an answer counts as the \
        timeout.\n";
    Ok(text)
}

/// Accuracy on every test sample, from the trainer: a run has too few reconstructions to tell.
pub(crate) fn accuracy(model_toml: &str) -> String {
    let measured = model_toml.lines().filter_map(|line| line.strip_prefix("accuracy_"));
    let measured = measured.collect::<Vec<_>>().join(", ");
    format!("Accuracy on all test samples, as the trainer measured it: {measured}.\n")
}

/// The coded run must leave nothing unanswered.
pub(crate) fn check(coded: &Value) -> Result<()> {
    let failed = figure(coded, "/counts/failed")?;
    let unanswered = figure(coded, "/counts/unanswered")?;
    let lost = format!("{failed} requests failed, {unanswered} stayed unanswered");
    ensure!(failed + unanswered == 0.0, "with coding, {lost}; see .parapet/demo/logs");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accuracy_of_reconstructions_is_that_of_all_test_samples() {
        let entry = "[training]\naccuracy_deployed = 0.876\naccuracy_reconstructed = 0.858\n";
        let words = "measured it: deployed = 0.876, reconstructed = 0.858.";
        assert!(accuracy(entry).contains(words), "{}", accuracy(entry));
    }

    #[test]
    fn table_says_how_requests_arrive_and_what_serves_them() {
        let report =
            |p99_9: f64| json!({ "valid": true, "latency": { "all": { "p99_9": p99_9 } } });
        let text = render(&report(370.0), &report(5.0), &[]).unwrap();
        for words in [
            "at constant intervals",
            "Without coding 4 instances serve, with coding 6",
            "74.0 times lower",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
