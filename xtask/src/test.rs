//! `cargo xtask test`: set-up, then every test of the workspace.

use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments handed on to the test runner, such as a test's name
    #[arg(last = true)]
    runner: Vec<String>,
}

/// Runs unit and integration tests with nextest where it is installed, and with `cargo test` where
/// it is not; then the doc tests, which nextest does not run.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&setup::Args::default())?;
    let sh = shell()?;
    let tests = match output(cmd!(sh, "cargo nextest --version")) {
        Ok(_) => "nextest run --workspace",
        Err(_) => "test --workspace --lib --bins --tests",
    };
    cargo_with(tests, &args.runner)?;
    if args.runner.is_empty() {
        // All of the workspace, as above: a choice of packages has other features, and would
        // compile dependencies once more.
        cargo("test --doc --workspace")?;
    }
    if !is_installed("etcd") {
        eprintln!(
            "etcd is not installed, so the tests of the registry in etcd were skipped (Debian, \
             Ubuntu: `apt install etcd-server`)"
        );
    }
    Ok(())
}
