//! `parapet-loadgen`: measures a prediction server under an open-loop load.
//!
//! Exit codes: 0 done, 1 failed or an objective missed, 2 the arguments or files given cannot be
//! used or the target does not answer, 130 ended by Ctrl-C or SIGTERM with a partial report.

mod compare;
mod diff;
mod display;
mod files;
mod interrupt;
mod outcome;
mod payload;
mod run;
mod schema;
mod simulate;
mod sweep;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Measures a prediction server under an open-loop load.
#[derive(Debug, Parser)]
#[command(version)]
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
    /// Simulate many points of rate, k, r and stragglers, and tell where each strategy wins
    Sweep(Box<sweep::Args>),
    /// Show what changed from one report to another
    Diff(diff::Args),
    /// Print the JSON Schema of a kind of report
    Schema(schema::Args),
}

const NO_COMMAND: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != NO_COMMAND => {
            eprintln!("parapet-loadgen: {}", complaint(&error));
            return ExitCode::from(outcome::BAD_INPUT);
        }
        // Help, asked for or not, and the version.
        Err(error) => error.exit(),
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Schema(args) => schema::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(outcome::Error { code, cause }) => {
            eprintln!("parapet-loadgen: {}", one_line(&cause));
            ExitCode::from(code)
        }
    }
}

/// Returns the parser's complaint, in one line and without the usage.
fn complaint(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("For more"))
        .collect();
    format!(
        "{}; see --help",
        said.join(" ").trim_start_matches("error: ")
    )
}

/// An error and its causes, but for those that it tells itself.
fn one_line(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
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
        let usual = "parapet-loadgen run --target t --model m --images i";
        for (arguments, said) in [
            (
                "--trace a --rate 5",
                "the argument '--trace <TRACE>' cannot be used with '--rate <RATE>'; see --help",
            ),
            (
                "--trace a --rate 5 --arrivals poisson",
                "the argument '--trace <TRACE>' cannot be used with: --rate <RATE> --arrivals \
                    <ARRIVALS>; see --help",
            ),
            (
                "",
                "the following required arguments were not provided: --rate <RATE>; see --help",
            ),
            (
                "--rate x",
                "invalid value 'x' for '--rate <RATE>': invalid float literal; see --help",
            ),
            (
                "--rat 5",
                "unexpected argument '--rat' found tip: a similar argument exists: '--rate'; see \
                    --help",
            ),
        ] {
            let words = usual.split_whitespace().chain(arguments.split_whitespace());
            assert_eq!(complaint(&Cli::try_parse_from(words).unwrap_err()), said);
        }
    }
}
