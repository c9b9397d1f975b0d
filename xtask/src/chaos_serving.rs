//! `cargo xtask chaos serving`: frontends and instances while everything goes wrong that can, and
//! every answer is judged.
//!
//! Debug builds, so that assertions are on. The program that does it is an example of the
//! frontend's package, whose own dependencies it needs; its first lines say which invariant is seen
//! how.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bench::section;
use crate::{cargo, native, workspace};

/// Runs of this length and more are written down.
const WORTH_WRITING: u64 = 600;

/// Arguments of `cargo xtask chaos serving`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds that the run lasts
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Of what is done, and of what is asked
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only print what would be done, and when
    #[arg(long)]
    plan: bool,
    /// Where to write what came of it, if it took ten minutes or more
    #[arg(long, default_value = "frontend/RESULTS.md")]
    out: PathBuf,
}

/// Builds the programs and runs them.
pub(crate) fn run(args: &Args) -> Result<()> {
    if std::env::var_os("PARAPET_BUILT").is_some() {
        // With the features of the whole workspace, as the tests have built the rest.
        cargo::run(&[
            "build",
            "--quiet",
            "--workspace",
            "--example",
            "chaos-serving",
        ])?;
    } else {
        native::run(&native::Args { serving_only: true })?;
        let packages = ["-p", "parapet-frontend", "-p", "parapet-models"];
        cargo::run(
            &[
                &["build", "--bins", "--example", "chaos-serving"],
                &packages[..],
            ]
            .concat(),
        )?;
    }
    let programs = workspace::target().join("debug");
    let folder = workspace::root().join(".parapet/chaos-serving");
    let outcome = workspace::root().join(".parapet/chaos-serving.md");
    // Whatever is there afterwards is of this run.
    let _none = std::fs::remove_file(&outcome);
    let mut command = Command::new(programs.join("examples/chaos-serving"));
    command.current_dir(workspace::root());
    command.args([
        "--seconds",
        &args.seconds.to_string(),
        "--seed",
        &args.seed.to_string(),
    ]);
    command
        .arg("--programs")
        .arg(&programs)
        .arg("--folder")
        .arg(&folder)
        .arg("--results")
        .arg(&outcome);
    if args.plan {
        command.arg("--plan");
    }
    let status = command.status().context("cannot start chaos-serving")?;
    if !args.plan && args.seconds >= WORTH_WRITING && status.code().is_some() {
        let text = std::fs::read_to_string(&outcome).context("it has written nothing down")?;
        let path = workspace::root().join(&args.out);
        section::write(
            &path,
            "What was measured of the frontend",
            "cargo xtask chaos serving",
            &text,
        )?;
    }
    ensure!(
        status.success(),
        "it failed ({status}); configurations and logs are in {}",
        folder.display()
    );
    Ok(())
}
