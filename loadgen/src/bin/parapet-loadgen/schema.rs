//! `parapet-loadgen schema`.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use parapet_loadgen::report::schemas;

use crate::outcome::{Error, bad_input, failed, print};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind of report: run, compare, simulation or sweep
    report: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let schemas = schemas();
    let Some((_, schema)) = schemas.iter().find(|(report, _)| *report == args.report) else {
        let known = schemas.each_ref().map(|(report, _)| *report).join(", ");
        let asked = &args.report;
        return Err(bad_input(anyhow!(
            "there is no report {asked:?}: give one of {known}"
        )));
    };
    let text = serde_json::to_string_pretty(schema).context("cannot write the schema");
    print(&format!("{}\n", text.map_err(failed)?))?;
    Ok(ExitCode::SUCCESS)
}
