//! Checks fail with one line where the program that they need is missing.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// Standard error of `cargo xtask` with these arguments on a machine without any tool.
fn complaint(arguments: &[&str]) -> String {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    // Nothing is built: the missing tool is found before that.
    command.args(arguments).env("PATH", empty.path()).env("PARAPET_BUILT", "1");
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{arguments:?} is green: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn live_page_check_fails_without_chromium() {
    let said = complaint(&["check", "live-page"]);
    assert!(said.contains("apt install chromium"), "{said}");
}

#[test]
fn network_namespace_runs_fail_without_etcd() {
    for run in ["train", "serve"] {
        let said = complaint(&["netns", run]);
        assert!(said.contains("apt install etcd-server"), "{run}: {said}");
    }
}
