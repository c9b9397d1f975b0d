//! `parapet-loadgen sweep` as a program.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

use parapet_loadgen::compare::SweepReport;
use tempfile::TempDir;

const USUAL: &str = "--instances 12 --redundant-instances 6 --service-time constant:18 --straggle \
    0.01:15:45 --strategy coded,equal_resources --queries 6000";

fn run(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
    command
        .current_dir(folder)
        .arg("sweep")
        .args(USUAL.split_whitespace());
    command.args(arguments.split_whitespace()).output().unwrap()
}

#[test]
fn every_point_of_the_axes_is_simulated() {
    let folder = TempDir::new().unwrap();
    let asked = "--rates 100,270 --ks 2,3 --json sweep.json --html sweep.html";
    let output = run(folder.path(), asked);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = std::fs::read(folder.path().join("sweep.json")).unwrap();
    let report: SweepReport = serde_json::from_slice(&text).unwrap();
    assert!(!report.partial);
    let axes: Vec<(f64, f64)> = report
        .points
        .iter()
        .map(|point| (point.axes["k"], point.axes["rate"]))
        .collect();
    assert_eq!(
        axes,
        [(2.0, 100.0), (2.0, 270.0), (3.0, 100.0), (3.0, 270.0)]
    );
    assert_eq!(report.knees.len(), 4, "one for each strategy and k");
    let gap = |strategy: usize| report.points[1].rows[strategy].gap_ms.value;
    assert!(
        gap(0) < gap(1),
        "coded has the smaller gap with a few stragglers"
    );
    assert!(folder.path().join("sweep.html").is_file());
}

#[test]
fn mistakes_are_one_line_and_leave_no_report() {
    let folder = TempDir::new().unwrap();
    for (arguments, named) in [
        ("--rates 100", "several points"),
        ("--rates 0,100", "rate: 0"),
        ("--rates 100,200 --ks 40", "40"),
        (
            "--rate 100 --straggle-probabilities 0.1,2",
            "straggle.probability: 2",
        ),
        ("--rates 100,200 --queries 5000000", "lower --queries"),
        ("--rates 100,200 --compare-json c.json", "--compare-json"),
        ("--rates 100,200 --strategy coded", "at least two"),
    ] {
        // What is given twice is refused by the parser: take the usual value out.
        let usual: Vec<&str> = USUAL.split_whitespace().collect();
        let kept: Vec<&str> = usual
            .chunks(2)
            .filter(|pair| !arguments.contains(pair[0]))
            .flatten()
            .copied()
            .collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
        command
            .current_dir(folder.path())
            .arg("sweep")
            .args(kept)
            .args(["--json", "sweep.json"]);
        let output = command.args(arguments.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(
            said.contains(named) && said.trim_end().lines().count() == 1,
            "{arguments}: {said}"
        );
        assert!(!folder.path().join("sweep.json").exists());
    }
}
