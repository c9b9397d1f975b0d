//! `parapet-loadgen diff`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use parapet_loadgen::report::{AnyReport, diff, read_report};

use crate::outcome::{Error, bad_input, print};

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
        diff(&first, &second, &args.second.display().to_string())
    });
    print(&found.map_err(bad_input)?)?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<AnyReport> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{name}: cannot read it; give a file that --json wrote"))?;
    read_report(&name, &text)
}
