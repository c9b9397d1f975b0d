//! Parapet's set-up, demo, test and CI steps: `cargo xtask <step>`.
//!
//! Each step, or group of steps, is a module with its arguments and a `run`; this dispatches.

#[path = "../benches/mod.rs"]
mod bench;
mod chaos;
mod check;
mod cluster;
mod demo;
mod dist;
mod http;
mod interop;
mod models;
mod netns;
mod process;
mod python;
mod setup;
mod test;
mod training;
mod workspace;

/// Names that most steps use.
mod prelude {
    pub(crate) use std::path::{Path, PathBuf};
    pub(crate) use std::time::{Duration, Instant};

    pub(crate) use anyhow::{Context as _, Result, anyhow, bail, ensure};
    pub(crate) use nix::sys::signal::Signal;
    pub(crate) use serde_json::{Value, json};
    pub(crate) use xshell::{Cmd, Shell, cmd};

    pub(crate) use crate::process::{LIMIT, Place, Processes, wait_for};
    pub(crate) use crate::workspace::*;
    pub(crate) use crate::{cluster, http, models, python, setup};
}

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Parapet: set-up, demo, test and CI steps.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Train, serve and compare: requests under faults, without coding and with it
    Demo(demo::Args),
    /// Measure: each prints its figures and writes its section of a RESULTS.md
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Inject faults into a running cluster and judge every answer
    #[command(subcommand)]
    Chaos(chaos::Chaos),
    /// Check documents, deployment files and pages against running programs
    #[command(subcommand)]
    Check(check::Check),
    /// Cut hosts off (network namespaces); needs root and etcd
    #[command(subcommand)]
    Netns(netns::Netns),
    /// Have real clients ask the frontend and the instance: tritonclient over HTTP and gRPC, curl
    Interop(interop::Args),
    /// Pack the serving side as a Python wheel, a Debian package and a tarball
    Dist(dist::Args),
    /// Fetch libtorch (for the trainer) and ONNX Runtime (for serving) into `.native`
    Setup(setup::Args),
    /// Run set-up, then every test of the workspace
    Test(test::Args),
}

fn main() -> ExitCode {
    let outcome = match &Cli::parse().step {
        Step::Demo(args) => demo::run(args),
        Step::Bench(bench) => bench::run(bench),
        Step::Chaos(chaos) => chaos::run(chaos),
        Step::Check(check) => check::run(check),
        Step::Netns(netns) => netns::run(netns),
        Step::Interop(args) => interop::run(args),
        Step::Dist(args) => dist::run(args),
        Step::Setup(args) => setup::run(args),
        Step::Test(args) => test::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
