//! `parapet-loadgen`: measures a prediction server under an open-loop load.
//!
//! Exit codes: 0 done, 1 failed or an objective missed, 2 the arguments or files given cannot be
//! used or the target does not answer, 130 ended by Ctrl-C or SIGTERM with a partial report.

/// Sets fields to those arguments of the same names that were given.
macro_rules! override_fields {
    ($target:expr, $arguments:expr, $($field:ident),* $(,)?) => {$(
        if let Some(value) = &$arguments.$field {
            $target.$field = value.clone();
        }
    )*};
}

mod compare;
mod files;
mod live;
mod run;
mod simulate;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parapet_config::log::one_line;
use parapet_loadgen::report::schemas;
use tokio::runtime::Runtime;

/// Measures a prediction server under an open-loop load.
#[derive(Debug, Parser)]
#[command(version, after_help = include_str!("help.txt"))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send requests at planned times and report latency, errors and accuracy
    Run(Box<run::Args>),
    /// Run redundancy strategies side by side on one schedule, and report what each buys and costs
    Compare(Box<compare::Args>),
    /// Simulate a cluster under several strategies in virtual time
    Simulate(Box<simulate::Args>),
    /// Print the JSON Schema of a kind of report
    Schema {
        /// Kind of report
        #[arg(value_parser = ["run", "compare", "simulation"])]
        report: String,
    },
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const INTERRUPTED: u8 = 130;
const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

struct Error {
    code: u8,
    cause: anyhow::Error,
}

impl From<anyhow::Error> for Error {
    fn from(cause: anyhow::Error) -> Self {
        Self { code: FAILED, cause }
    }
}

fn bad_input(cause: anyhow::Error) -> Error {
    Error { code: BAD_INPUT, cause }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != NO_COMMAND => {
            eprintln!("parapet-loadgen: {}", complaint(&error));
            return ExitCode::from(BAD_INPUT);
        }
        // Help, asked for or not, and the version.
        Err(error) => error.exit(),
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Schema { report } => show_schema(&report),
    };
    done.unwrap_or_else(|Error { code, cause }| {
        eprintln!("parapet-loadgen: {}", one_line(cause.as_ref()));
        ExitCode::from(code)
    })
}

fn show_schema(report: &str) -> Result<ExitCode, Error> {
    let schema = schemas().into_iter().find(|(known, _)| *known == report);
    let (_, schema) = schema.context("there is no such report")?;
    let text = serde_json::to_string_pretty(&schema).context("cannot write the schema")?;
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the report of a command whose files were `written`.
///
/// Whichever of files and standard output fails, the other has the figures: a run can be long.
fn finish(
    report: &impl Display,
    written: anyhow::Result<()>,
    partial: bool,
) -> Result<ExitCode, Error> {
    let shown = print(report);
    written?;
    shown?;
    Ok(if partial { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// A runtime whose requests may have as many connections as the system allows.
fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    // Every request in flight has a connection: the default limit of 1024 files is soon met.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Refused, connections beyond the limit fail and are counted as such.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(threads.max(1)).enable_all();
    runtime.build().context("cannot start the runtime")
}

fn print(text: &impl Display) -> anyhow::Result<()> {
    write!(std::io::stdout(), "{text}").context("cannot write to standard output")
}

fn complaint(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = lines.filter(|line| !line.is_empty() && !line.starts_with("For more"));
    format!("{}; see --help", said.collect::<Vec<_>>().join(" ").trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_parser_complains_in_one_line() {
        for (arguments, said) in [
            (
                "--trace a --rate 5",
                "the argument '--trace <TRACE>' cannot be used with '--rate <RATE>'",
            ),
            (
                "--trace a --rate 5 --arrivals poisson",
                "the argument '--trace <TRACE>' cannot be used with: --rate <RATE> --arrivals \
                 <ARRIVALS>",
            ),
            ("", "the following required arguments were not provided: --rate <RATE>"),
            ("--rate x", "invalid value 'x' for '--rate <RATE>': invalid float literal"),
            (
                "--rat 5",
                "unexpected argument '--rat' found tip: a similar argument exists: '--rate'",
            ),
        ] {
            let line = format!("parapet-loadgen run --target t --model m --images i {arguments}");
            let error = Cli::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(complaint(&error), format!("{said}; see --help"));
        }
    }
}
