//! The program under test.

#![allow(clippy::unwrap_used, dead_code, reason = "tests; each uses a part")]

use std::path::Path;
use std::process::{Command, Output};

/// A run of the program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program in `folder`, with the words of `line` as its arguments.
pub(crate) fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
    command.current_dir(folder).args(line.split_whitespace());
    command
}

pub(crate) fn run(folder: &Path, line: &str) -> Ended {
    command(folder, line).output().unwrap().into()
}

/// As [`run`], beside servers of the same runtime.
pub(crate) async fn run_beside(folder: &Path, line: &str) -> Ended {
    let mut command = tokio::process::Command::from(command(folder, line));
    command.output().await.unwrap().into()
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// The input was bad, which one line says.
    pub(crate) fn refused(&self, says: &str) {
        let stderr = &self.stderr;
        assert_eq!(self.code, Some(2), "{says}: {stderr}");
        assert!(stderr.contains(says), "{stderr}, not {says}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    }
}

/// Default arguments, pairs of names and values, but for those that `changes` gives as well.
pub(crate) fn changed(defaults: &str, changes: &str) -> String {
    let given: Vec<&str> = changes.split_whitespace().collect();
    let words: Vec<&str> = defaults.split_whitespace().collect();
    let kept = words.chunks(2).filter(|pair| !given.contains(&pair[0]));
    let kept: Vec<&str> = kept.flatten().chain(&given).copied().collect();
    kept.join(" ")
}

/// Cases of a table with a line for each: arguments, `=>`, and what refuses them.
pub(crate) fn cases(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.trim().lines();
    let cases = lines.map(|line| line.split_once("=>").unwrap());
    cases.map(|(arguments, says)| (arguments.trim(), says.trim()))
}
