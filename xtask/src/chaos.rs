//! `cargo xtask chaos`: faults in running clusters, and every answer is judged, by examples of the
//! packages whose dependencies they need; their first lines say which invariant is seen how.

use crate::bench::report;
use crate::prelude::*;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// Kill servers of a parameter-server cluster while a worker pushes
    ParameterServer(Arguments),
    /// Freeze, kill, spoil, reload and roll a serving cluster
    Serving(Arguments),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of the program that does it, such as `--seed 2`; `-- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub(crate) fn run(chaos: &Chaos) -> Result<()> {
    match chaos {
        Chaos::ParameterServer(args) => kill_parameter_servers(&args.arguments),
        Chaos::Serving(args) => disturb_serving(&args.arguments),
    }
}

fn kill_parameter_servers(arguments: &[String]) -> Result<()> {
    cargo("build --release -p parapet-cluster --bins --example chaos")?;
    let mut more = vec!["--program".to_owned()];
    more.push(release("parapet-parameter-server").display().to_string());
    more.extend_from_slice(arguments);
    cargo_with("run --release -p parapet-cluster --example chaos --", &more)
}

/// Debug builds, so that assertions are on.
fn disturb_serving(arguments: &[String]) -> Result<()> {
    if std::env::var_os("PARAPET_BUILT").is_some() {
        // With the features of the whole workspace, as the tests have built the rest.
        cargo("build --quiet --workspace --example chaos-serving")?;
    } else {
        setup::run(&setup::Args { serving_only: true })?;
        cargo("build --bins --example chaos-serving -p parapet-frontend -p parapet-models")?;
    }
    let sh = shell()?;
    let (folder, results) = (scratch("chaos-serving"), scratch("chaos-serving.md"));
    // Whatever is there afterwards is of this run.
    sh.remove_path(&results)?;
    let (program, programs) = (debug("examples/chaos-serving"), target().join("debug"));
    let command = cmd!(
        sh,
        "{program} --programs {programs} --folder {folder} --results {results} {arguments...}"
    );
    let outcome = command.quiet().run();
    if results.exists() {
        report::write(report::FRONTEND, "cargo xtask chaos serving", &sh.read_file(&results)?)?;
    }
    outcome.with_context(|| format!("see {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        chaos: Chaos,
    }

    fn passed_on(line: &str) -> Result<Vec<String>, ErrorKind> {
        let words = ["chaos", "parameter-server"].into_iter().chain(line.split_whitespace());
        let parsed = Cli::try_parse_from(words).map_err(|error| error.kind())?;
        match parsed.chaos {
            Chaos::ParameterServer(args) | Chaos::Serving(args) => Ok(args.arguments),
        }
    }

    #[test]
    fn arguments_are_passed_on_as_they_are() {
        for line in ["", "--kills 5", "--kills=5 --registry etcd://a:1/b", "--kills 5 --help"] {
            let words = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(passed_on(line), Ok(words), "{line}");
        }
        assert_eq!(passed_on("-- --help"), Ok(vec!["--help".to_owned()]));
        assert_eq!(passed_on("--help"), Err(ErrorKind::DisplayHelp), "its own");
    }
}
