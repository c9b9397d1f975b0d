//! `parapet-loadgen schema`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use parapet_loadgen::report::schemas;

use crate::run::{BAD_INPUT, Error, failed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind of report: run, compare, simulation or sweep
    report: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let schemas = schemas();
    let Some((_, schema)) = schemas.iter().find(|(report, _)| *report == args.report) else {
        let known = schemas.each_ref().map(|(report, _)| *report).join(", ");
        let cause = anyhow!("there is no report {:?}: give one of {known}", args.report);
        return Err(Error {
            code: BAD_INPUT,
            cause,
        });
    };
    let text = serde_json::to_string_pretty(schema)
        .context("cannot write the schema")
        .map_err(failed)?;
    writeln!(std::io::stdout(), "{text}")
        .context("cannot write to standard output")
        .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
