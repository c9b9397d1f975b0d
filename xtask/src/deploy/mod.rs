//! `cargo xtask check deploy`: what is in `deploy/` holds together, as far as that can be told
//! without a cluster or a container engine.
//!
//! | what | by |
//! |---|---|
//! | systemd units | `systemd-analyze verify`, and `security` with a bound |
//! | the compose file | `docker-compose config` |
//! | the chart | Helm's own `lint` and `template`, in several variants |
//! | what the chart renders | the schemas of Kubernetes' API (the package `kubernetes-validate`), ours in `deploy/schemas` for JobSet and the Prometheus operator |
//! | `deploy/kubernetes/` | equal to what the chart renders |
//! | configurations of the frontend within all that | `parapet-frontend --check` |
//! | arguments of our programs within the chart | the programs themselves, of which the trainer must have been built |
//!
//! Images are not built.

mod arguments;
mod chart;
mod configs;
pub(crate) mod tools;
mod units;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::tools::Tools;
use crate::{sample, workspace};

/// Arguments of `cargo xtask check deploy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write what the chart renders into deploy/kubernetes, instead of comparing
    #[arg(long)]
    write: bool,
}

/// Runs the checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = sample::folder("deploy");
    workspace::make_folder(&folder)?;
    let deploy = workspace::root().join("deploy");
    units::check(&deploy, &folder)?;
    compose(&deploy)?;
    let tools = Tools::install()?;
    let rendered = chart::check(&tools, &deploy, args.write)?;
    configs::check(&deploy, &folder, &rendered)?;
    arguments::check(&rendered)?;
    println!(
        "deploy/: units, compose file, chart, configurations and arguments are sound; images were \
            not built"
    );
    Ok(())
}

fn compose(deploy: &Path) -> Result<()> {
    let file = deploy.join("compose/compose.yaml");
    let missing =
        "docker-compose is missing (Debian: `apt install --no-install-recommends docker-compose`)";
    output(
        Command::new("docker-compose")
            .arg("-f")
            .arg(&file)
            .args(["config", "-q"]),
        missing,
    )
    .map(drop)
}

/// Returns a command's standard output, if it succeeds; the error is `missing` if it
/// is not installed.
fn output(command: &mut Command, missing: &str) -> Result<String> {
    let output = command.output().with_context(|| missing.to_owned())?;
    if !output.status.success() {
        let line: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .collect();
        let said =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        bail!("{line:?}: {}", said.concat().trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|file| file.to_string_lossy().ends_with(ending));
    files.sort();
    Ok(files)
}
