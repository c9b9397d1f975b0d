//! `parapet-loadgen compare` as a program: what it refuses before it starts anything.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run(folder: &Path, experiment: &str, arguments: &str) -> Output {
    let path = folder.join("experiment.toml");
    std::fs::write(&path, experiment).unwrap();
    let data = root().join("deploy/local/data/fashion2k");
    let mut command = Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
    command
        .current_dir(folder)
        .arg("compare")
        .arg("--experiment")
        .arg(&path);
    command
        .arg("--images")
        .arg(data.join("t10k-images-idx3-ubyte.gz"));
    command
        .args(["--repository", ".", "--json", "report.json"])
        .args(arguments.split_whitespace());
    command.output().unwrap()
}

#[test]
fn mistakes_are_one_line_and_leave_no_report() {
    let tail = std::fs::read_to_string(root().join("loadgen/experiments/tail.toml")).unwrap();
    let folder = TempDir::new().unwrap();
    for (experiment, arguments, named) in [
        (tail.as_str(), "--rate 0", "rate: 0"),
        (&tail, "--strategies coder", "unknown strategy \"coder\""),
        (&tail, "--requests 3", "3 requests for 10 blocks"),
        (
            &tail,
            "--slo coded",
            "--slo \"coded\": give STRATEGY:OBJECTIVE",
        ),
        (
            &tail,
            "--slo coder:p99=3ms",
            "no strategy is named \"coder\"",
        ),
        (&tail, "--slo coded:p99=3", "is no time"),
        (
            &tail,
            "--bin-dir /nowhere",
            "build it, or give its folder with --bin-dir",
        ),
        (
            &tail.replace("k = 2\n", "k = 40\n"),
            "",
            "k = 40 is more than the 12 instances",
        ),
        (
            &tail.replace("\"coded\"\n", "\"coder\"\n"),
            "",
            "unknown strategy",
        ),
        (&tail.replace("ms = 18", "ms = -18"), "", "service_time.ms"),
    ] {
        let output = run(folder.path(), experiment, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(
            said.contains(named) && said.trim_end().lines().count() == 1,
            "{arguments}: {said}"
        );
        assert!(!folder.path().join("report.json").exists());
    }
}

#[test]
fn the_experiments_of_the_repository_are_well_formed() {
    for name in ["tail", "faults"] {
        let path = root().join(format!("loadgen/experiments/{name}.toml"));
        parapet_loadgen::experiment::Experiment::read(&path).unwrap();
    }
}

#[test]
fn a_cause_is_told_once() {
    let folder = TempDir::new().unwrap();
    let cut = folder.path().join("cut.gz");
    let whole = std::fs::read(root().join("deploy/local/data/fashion2k/t10k-images-idx3-ubyte.gz"))
        .unwrap();
    std::fs::write(&cut, &whole[..5_000]).unwrap();
    let program = env!("CARGO_BIN_EXE_parapet-loadgen");
    let missing = [
        "compare",
        "--experiment",
        "/nowhere.toml",
        "--repository",
        ".",
        "--images",
        "none",
    ];
    let truncated = [
        "run",
        "--target",
        "http://127.0.0.1:1",
        "--model",
        "m",
        "--rate",
        "1",
        "--images",
    ];
    for (arguments, file, cause) in [
        (&missing[..], None, "No such file or directory"),
        (&truncated, Some(&cut), "incomplete deflate stream"),
    ] {
        let output = Command::new(program)
            .args(arguments)
            .args(file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), said.matches(cause).count()),
            (Some(2), 1),
            "{said}"
        );
    }
}
