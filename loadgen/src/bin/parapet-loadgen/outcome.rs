//! Ends of commands: errors, what is shown, and exit codes.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

pub(crate) const BAD_INPUT: u8 = 2;
const FAILED: u8 = 1;
const INTERRUPTED: u8 = 130;

/// An error with its exit code.
pub(crate) struct Error {
    pub(crate) code: u8,
    pub(crate) cause: anyhow::Error,
}

pub(crate) fn failed(cause: anyhow::Error) -> Error {
    Error {
        code: FAILED,
        cause,
    }
}

pub(crate) fn bad_input(cause: anyhow::Error) -> Error {
    Error {
        code: BAD_INPUT,
        cause,
    }
}

/// Shows the report of a command whose files were `written`, then a line for each objective that
/// was missed.
///
/// Whichever of files and standard output fails, the other has the figures: a run can be long.
pub(crate) fn finish(
    report: &impl Display,
    written: anyhow::Result<()>,
    partial: bool,
    missed: &[String],
) -> Result<ExitCode, Error> {
    let shown = print(report);
    written.map_err(failed)?;
    shown?;
    for line in missed {
        eprintln!("parapet-loadgen: {line}");
    }
    Ok(match partial {
        true => ExitCode::from(INTERRUPTED),
        false if !missed.is_empty() => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    })
}

/// Writes to standard output.
pub(crate) fn print(text: &impl Display) -> Result<(), Error> {
    write!(std::io::stdout(), "{text}")
        .context("cannot write to standard output")
        .map_err(failed)
}
