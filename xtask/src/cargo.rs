//! Runs cargo as a child.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{native, workspace};

/// A cargo command in the root of the checkout.
///
/// `.cargo/config.toml` alone spells the path of our libtorch: each other spelling would
/// compile torch-sys again, so the value that the outer cargo handed us is taken out of
/// the child's environment.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).args(args);
    if native::users_libtorch().is_none() {
        command.env_remove("LIBTORCH");
    }
    command
}

/// Runs cargo with `args`; its output goes to the terminal.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let line = format!("cargo {}", args.join(" "));
    eprintln!("$ {line}");
    let status = cargo(args)
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    ensure!(status.success(), "`{line}` failed ({status})");
    Ok(())
}

/// Builds everything that serves and measures, optimised.
pub(crate) fn build_serving() -> Result<()> {
    let packages = [
        "-p",
        "parapet-frontend",
        "-p",
        "parapet-models",
        "-p",
        "parapet-loadgen",
    ];
    run(&[&["build", "--release"][..], &packages].concat())
}

/// Builds everything that the demo runs in one invocation, so that each package is compiled once.
/// The development profile is used: it optimises what computes, and skips the slow rest.
pub(crate) fn build_for_demo() -> Result<()> {
    let packages = [
        "parapet-frontend",
        "parapet-models",
        "parapet-loadgen",
        "parity-trainer",
    ];
    let arguments = packages.into_iter().flat_map(|package| ["-p", package]);
    run(&[&["build", "--bins"][..], &arguments.collect::<Vec<_>>()].concat())
}

/// Builds the trainer for timing. The development profile optimises what computes; here
/// the parameter server's processes are optimised, too, which in every build of the tests
/// would cost minutes.
pub(crate) fn build_trainer_optimised() -> Result<()> {
    run(&[
        "--config",
        "profile.dev.package.parapet-cluster.opt-level=2",
        "build",
        "-p",
        "parity-trainer",
    ])
}

/// Returns true if the cargo subcommand `name` is installed.
pub(crate) fn has(name: &str) -> bool {
    cargo(&[name, "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}
