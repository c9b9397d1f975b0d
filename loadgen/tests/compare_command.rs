//! `parapet-loadgen compare` as a program: what it refuses before it starts anything.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/program.rs"]
mod program;

use std::path::{Path, PathBuf};

use parapet_loadgen::experiment::Experiment;
use program::{cases, run};
use tempfile::TempDir;

const IMAGES: &str = "deploy/local/data/fashion2k/t10k-images-idx3-ubyte.gz";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn mistakes_are_one_line_and_leave_no_report() {
    let tail = std::fs::read_to_string(root().join("loadgen/experiments/tail.toml")).unwrap();
    let folder = TempDir::new().unwrap();
    let images = root().join(IMAGES);
    let refused = |experiment: &str, arguments: &str, says: &str| {
        std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
        let images = images.display();
        let line = format!(
            "compare --experiment experiment.toml --images {images} --repository . --json \
             report.json {arguments}"
        );
        run(folder.path(), &line).refused(says);
        assert!(!folder.path().join("report.json").exists());
    };
    for (arguments, says) in cases(
        r#"
--rate 0 => rate: 0
--requests 3 => 3 requests for 10 blocks
"#,
    ) {
        refused(&tail, arguments, says);
    }
    for (from, to, says) in [
        ("k = 2\n", "k = 40\n", "k = 40 is more than the 12 instances"),
        ("\"coded\"\n", "\"coder\"\n", "unknown strategy"),
        ("ms = 18", "ms = -18", "service_time.ms"),
    ] {
        refused(&tail.replace(from, to), "", says);
    }
}

#[test]
fn the_experiments_of_the_repository_are_well_formed() {
    for name in ["tail", "faults"] {
        let path = root().join(format!("loadgen/experiments/{name}.toml"));
        Experiment::read(&path).unwrap();
    }
}

#[test]
fn a_cause_is_told_once() {
    let folder = TempDir::new().unwrap();
    let whole = std::fs::read(root().join(IMAGES)).unwrap();
    std::fs::write(folder.path().join("cut.gz"), &whole[..5_000]).unwrap();
    for (line, cause) in [
        (
            "compare --experiment /nowhere.toml --repository . --images none",
            "No such file or directory",
        ),
        (
            "run --target http://127.0.0.1:1 --model m --rate 1 --images cut.gz",
            "incomplete deflate stream",
        ),
    ] {
        let ended = run(folder.path(), line);
        ended.refused(cause);
        assert_eq!(ended.stderr.matches(cause).count(), 1, "{}", ended.stderr);
    }
}
