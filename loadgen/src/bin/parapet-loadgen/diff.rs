//! `parapet-loadgen diff`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use parapet_loadgen::report::{AnyReport, diff, read_report};

use crate::run::{BAD_INPUT, Error, failed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Report that --json wrote
    first: PathBuf,
    /// Another of the same kind
    second: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let found = read(&args.first).and_then(|first| {
        let second = read(&args.second)?;
        Ok(diff(&first, &second, &args.second.display().to_string())?)
    });
    let found = found.map_err(|cause| Error {
        code: BAD_INPUT,
        cause,
    })?;
    write!(std::io::stdout(), "{found}")
        .context("cannot write to standard output")
        .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<AnyReport> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{name}: cannot read it; give a file that --json wrote"))?;
    Ok(read_report(&name, &text)?)
}
