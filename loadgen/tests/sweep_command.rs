//! `parapet-loadgen sweep` as a program.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/program.rs"]
mod program;

use parapet_loadgen::compare::SweepReport;
use program::{Ended, cases, changed, run};
use tempfile::TempDir;

const DEFAULTS: &str = "--instances 12 --redundant-instances 6 --service-time constant:18 \
    --straggle 0.01:15:45 --strategy coded,equal_resources --queries 6000 --json sweep.json";

fn sweep(folder: &TempDir, changes: &str) -> Ended {
    run(
        folder.path(),
        &format!("sweep {}", changed(DEFAULTS, changes)),
    )
}

#[test]
fn every_point_of_the_axes_is_simulated() {
    let folder = TempDir::new().unwrap();
    sweep(&folder, "--rates 100,270 --ks 2,3 --html sweep.html").succeeded();
    let text = std::fs::read(folder.path().join("sweep.json")).unwrap();
    let report: SweepReport = serde_json::from_slice(&text).unwrap();
    assert!(!report.partial);
    let axes = report.points.iter();
    let axes: Vec<(f64, f64)> = axes
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
    for (changes, says) in cases(
        r#"
--rates 100 => several points
--rates 0,100 => rate: 0
--rates 100,200 --ks 40 => 40
--rate 100 --straggle-probabilities 0.1,2 => straggle.probability: 2
--rates 100,200 --queries 5000000 => lower --queries
--rates 100,200 --compare-json c.json => --compare-json
--rates 100,200 --strategy coded => at least two
"#,
    ) {
        sweep(&folder, changes).refused(says);
        assert!(!folder.path().join("sweep.json").exists());
    }
}
