//! `cargo xtask test`: set-up, then every test of the workspace.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{cargo, native};

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments handed on to the test runner, such as a test's name
    #[arg(last = true)]
    runner: Vec<String>,
}

/// Runs unit and integration tests with nextest where it is installed, and with `cargo test` where
/// it is not; then the doc tests, which nextest does not run.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args::default())?;
    let runner = args.runner.iter().map(String::as_str);
    let tests: &[&str] = match cargo::has("nextest") {
        true => &["nextest", "run", "--workspace"],
        false => &["test", "--workspace", "--lib", "--bins", "--tests"],
    };
    cargo::run(&tests.iter().copied().chain(runner).collect::<Vec<_>>())?;
    if args.runner.is_empty() {
        // All of the workspace, as above: a choice of packages has other features, and would
        // compile dependencies once more.
        cargo::run(&["test", "--doc", "--workspace"])?;
    }
    if Command::new("etcd")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!(
            "etcd is not installed, so the tests of the registry in etcd were skipped (Debian, \
                Ubuntu: `apt install etcd-server`)"
        );
    }
    Ok(())
}
