//! `cargo xtask chaos parameter-server`: servers of a real cluster are killed while a worker
//! pushes.

use anyhow::Result;

use crate::{cargo, workspace};

/// Arguments of `cargo xtask chaos parameter-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the program that kills, such as `--kills 5`; `-- --help` lists them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<String>,
}

/// Builds the programs, optimised, and runs them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let package = ["--release", "-p", "parapet-cluster"];
    cargo::run(&[&["build"], &package[..], &["--bins", "--example", "chaos"]].concat())?;
    let program = workspace::target()
        .join("release/parapet-parameter-server")
        .display()
        .to_string();
    let mut line = [
        &["run"],
        &package[..],
        &["--example", "chaos", "--", "--program", &program],
    ]
    .concat();
    line.extend(args.arguments.iter().map(String::as_str));
    cargo::run(&line)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn passed_on(line: &str) -> Result<Vec<String>, ErrorKind> {
        let parsed = Cli::try_parse_from(["chaos"].into_iter().chain(line.split_whitespace()));
        parsed
            .map(|cli| cli.args.arguments)
            .map_err(|error| error.kind())
    }

    #[test]
    fn arguments_are_passed_on_as_they_are() {
        for line in [
            "",
            "--kills 5",
            "--kills=5 --registry etcd://a:1/b",
            "--kills 5 --help",
        ] {
            assert_eq!(
                passed_on(line),
                Ok(line.split_whitespace().map(str::to_owned).collect()),
                "{line}"
            );
        }
        assert_eq!(passed_on("-- --help"), Ok(vec!["--help".to_owned()]));
        assert_eq!(passed_on("--help"), Err(ErrorKind::DisplayHelp), "its own");
    }
}
