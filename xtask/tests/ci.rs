//! `.ci/run` with stand-ins for every tool that it calls: it tolerates no failure and names what it
//! leaves out.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Tools that come from Debian's packages.
const PACKAGED: &str = "chromium curl docker-compose dpkg-shlibdeps etcd ip openssl prometheus \
    promtool systemd-analyze";
const SUCCEEDS: &str = "exit 0";
const FAILS: &str = "echo 'E: unable to locate package' >&2; exit 100";

/// A machine of which CI sees these tools only.
struct Machine {
    folder: TempDir,
}

impl Machine {
    /// Every tool is there and succeeds; packages cannot be installed.
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        for tool in ["dirname", "id", "sed"] {
            symlink(real(tool), machine.folder.path().join(tool)).unwrap();
        }
        for tool in PACKAGED.split(' ').chain(["cargo-deb", "cargo-deny", "python3"]) {
            machine.install(tool, SUCCEEDS);
        }
        machine.install("apt-get", FAILS);
        let note = format!("echo \"$*\" >> {}", machine.calls().display());
        machine.install("cargo", &note);
        machine
    }

    fn install(&self, tool: &str, script: &str) {
        let path = self.folder.path().join(tool);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn remove(&self, tool: &str) {
        fs::remove_file(self.folder.path().join(tool)).unwrap();
    }

    /// File of the lines with which cargo was called.
    fn calls(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    fn run(&self) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run");
        let mut command = Command::new("/bin/bash");
        command.arg(script).env_clear().env("PATH", self.folder.path());
        command.output().unwrap()
    }
}

fn real(tool: &str) -> PathBuf {
    let folders = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
    folders.into_iter().find(|path| path.exists()).unwrap()
}

fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn whole_run_says_at_the_end_that_nothing_was_left_out() {
    let output = Machine::new().run();
    assert!(output.status.success(), "{output:?}");
    let last = last_line(&output);
    let is_whole = last.starts_with("done: ") && last.contains(" steps, none left out");
    assert!(is_whole, "{last}");
}

#[test]
fn tool_that_cannot_be_installed_fails_the_run() {
    for tool in PACKAGED.split(' ') {
        let machine = Machine::new();
        machine.remove(tool);
        let output = machine.run();
        let is_done = output.status.success() || last_line(&output).starts_with("done");
        assert!(!is_done, "without {tool}: {output:?}");
    }
}

#[test]
fn tool_that_its_package_does_not_bring_fails_the_run() {
    let machine = Machine::new();
    machine.remove("chromium");
    machine.install("apt-get", SUCCEEDS);
    let output = machine.run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("chromium"), "{output:?}");
}

#[test]
fn step_that_fails_fails_the_run() {
    let machine = Machine::new();
    machine.run();
    let calls = fs::read_to_string(machine.calls()).unwrap();
    assert!(calls.lines().count() > 10, "{calls}");
    for call in calls.lines() {
        machine.install("cargo", &format!("[ \"$*\" != '{call}' ]"));
        let output = machine.run();
        assert!(!output.status.success(), "cargo {call} failed, and the run is green: {output:?}");
    }
}

#[test]
fn network_namespaces_that_the_machine_refuses_are_named_in_the_last_line() {
    let machine = Machine::new();
    machine.install("ip", "echo 'Operation not permitted' >&2; exit 1");
    machine.remove("id");
    machine.install("id", "echo 0");
    let output = machine.run();
    let last = last_line(&output);
    let is_named = last.contains("left out") && last.contains("network namespaces");
    assert!(is_named && !last.contains("none left out"), "{output:?}");
}
