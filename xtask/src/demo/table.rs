//! The demo's result for people.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::faults::{self, PARITY, Planned, REPLICAS};

/// Rows of the table: name, place in the report, digits, factor.
const ROWS: [(&str, &str, usize, f64); 12] = [
    ("requests sent", "/counts/sent", 0, 1.0),
    (
        "answered with the exact prediction",
        "/provenance/exact/count",
        0,
        1.0,
    ),
    (
        "answered with a reconstruction",
        "/provenance/reconstructed/count",
        0,
        1.0,
    ),
    ("answered with an error", "/counts/failed", 0, 1.0),
    ("unanswered", "/counts/unanswered", 0, 1.0),
    (
        "accuracy of exact predictions, %",
        "/provenance/exact/accuracy/accuracy",
        1,
        100.0,
    ),
    (
        "accuracy of reconstructions, %",
        "/provenance/reconstructed/accuracy/accuracy",
        1,
        100.0,
    ),
    ("accuracy of all answers, %", "/accuracy/accuracy", 1, 100.0),
    ("p50, ms", "/latency/all/p50", 2, 1.0),
    ("p99, ms", "/latency/all/p99", 2, 1.0),
    ("p99.9, ms", "/latency/all/p99_9", 2, 1.0),
    ("worst, ms", "/latency/all/max", 2, 1.0),
];

/// The two runs side by side.
pub(crate) fn render(plain: &Value, coded: &Value, faults: &[Planned]) -> Result<String> {
    let mut text = String::new();
    let number = |report: &Value, path: &str| report.pointer(path).and_then(Value::as_f64);
    writeln!(
        text,
        "Faults, the same in both runs: {}; one replica killed half-way.",
        faults::describe(faults)
    )?;
    writeln!(
        text,
        "Requests are sent at constant intervals, not at random. Without coding {REPLICAS} \
            instances serve, with coding {}: {PARITY} parity instances beside the {REPLICAS} \
            replicas.\n",
        REPLICAS + PARITY
    )?;
    writeln!(
        text,
        "{:<44}{:>14}{:>14}",
        "", "without coding", "with coding"
    )?;
    let mut row = |name: &str, path: &str, digits: usize, scale: f64| -> Result<()> {
        let show = |report: &Value| match number(report, path) {
            Some(value) => format!("{:.*}", digits, value * scale),
            None => "-".to_owned(),
        };
        Ok(writeln!(
            text,
            "{name:<44}{:>14}{:>14}",
            show(plain),
            show(coded)
        )?)
    };
    for (name, path, digits, scale) in ROWS {
        row(name, path, digits, scale)?;
    }
    let p999 = |report| number(report, "/latency/all/p99_9").context("a report without p99.9");
    writeln!(
        text,
        "\np99.9 is {:.1} times lower with coding.",
        p999(plain)? / p999(coded)?
    )?;
    for (name, report) in [("without", plain), ("with", coded)] {
        if report["valid"] != Value::Bool(true) {
            writeln!(
                text,
                "The run {name} coding fell behind its schedule (busy machine): run it again."
            )?;
        }
    }
    writeln!(
        text,
        "Latency counts from the planned send time; a request without an answer counts as the \
            timeout."
    )?;
    Ok(text)
}

/// The coded run must leave nothing unanswered.
pub(crate) fn check(coded: &Value) -> Result<()> {
    let count = |path: &str| {
        coded
            .pointer(path)
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX)
    };
    let (failed, unanswered) = (count("/counts/failed"), count("/counts/unanswered"));
    ensure!(
        unanswered == 0 && failed == 0,
        "with coding, {failed} requests failed and {unanswered} stayed unanswered; see \
            .parapet/demo/logs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_says_how_requests_arrive_and_what_serves_them() {
        let report =
            |p99_9: f64| json!({ "valid": true, "latency": { "all": { "p99_9": p99_9 } } });
        let text = render(&report(370.0), &report(5.0), &[]).unwrap();
        assert!(text.contains("at constant intervals"), "{text}");
        assert!(
            text.contains("Without coding 4 instances serve, with coding 6"),
            "{text}"
        );
        assert!(text.contains("74.0 times lower"), "{text}");
    }
}
