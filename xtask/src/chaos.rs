//! `cargo xtask chaos-parameter-server`: servers of a real cluster are killed while a worker pushes.

use anyhow::Result;

use crate::{cargo, workspace};

/// Arguments of `cargo xtask chaos-parameter-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many servers are killed, one after the other
    #[arg(long, default_value_t = 20)]
    kills: usize,
    /// Use this registry in etcd (`etcd://HOST:PORT/CLUSTER`), and no coordinator
    #[arg(long, value_name = "ADDRESS")]
    registry: Option<String>,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Builds the programs, optimised, and runs them.
///
/// # Errors
/// If an acknowledged push is lost, something hangs, or pushes go on too late.
pub(crate) fn run(args: &Args) -> Result<()> {
    let package = ["--release", "-p", "parapet-parameter-server-cluster"];
    cargo::run(&[&["build"], &package[..], &["--bins", "--example", "chaos"]].concat())?;
    let program = workspace::target().join("release/parapet-parameter-server").display().to_string();
    let (kills, seed) = (args.kills.to_string(), args.seed.to_string());
    let mut line = [&["run"], &package[..], &["--example", "chaos", "--", "--program", &program]].concat();
    line.extend(["--kills", &kills, "--seed", &seed]);
    if let Some(registry) = &args.registry {
        line.extend(["--registry", registry]);
    }
    cargo::run(&line)
}
