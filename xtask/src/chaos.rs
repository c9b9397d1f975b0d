//! `cargo xtask chaos`: faults in running clusters, and every answer is judged. The programs that
//! do it are examples of the packages whose dependencies they need; their first lines say which
//! invariant is seen how.

use crate::bench::report;
use crate::prelude::*;
use clap::Subcommand;

const WORTH_WRITING: u64 = 600;

#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// Kill servers of a parameter-server cluster while a worker pushes
    ParameterServer {
        /// Arguments of the program that kills, such as `--kills 5`; `-- --help` lists them
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGUMENT"
        )]
        arguments: Vec<String>,
    },
    /// Freeze, kill, spoil, reload and roll a serving cluster
    Serving(ServingArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServingArgs {
    /// Seconds that the run lasts
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Of what is done, and of what is asked
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only print what would be done, and when
    #[arg(long)]
    plan: bool,
}

pub(crate) fn run(chaos: &Chaos) -> Result<()> {
    match chaos {
        Chaos::ParameterServer { arguments } => kill_parameter_servers(arguments),
        Chaos::Serving(args) => disturb_serving(args),
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
fn disturb_serving(args: &ServingArgs) -> Result<()> {
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
    let (seconds, seed) = (args.seconds.to_string(), args.seed.to_string());
    let plan = args.plan.then_some("--plan");
    let command = cmd!(
        sh,
        "{program} --seconds {seconds} --seed {seed} --programs {programs} --folder {folder}
            --results {results} {plan...}"
    );
    let outcome = command.quiet().run();
    if results.exists() && args.seconds >= WORTH_WRITING {
        let name = "cargo xtask chaos serving";
        report::write(report::FRONTEND, name, &sh.read_file(&results)?)?;
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
        let words = ["chaos", "parameter-server"]
            .into_iter()
            .chain(line.split_whitespace());
        let parsed = Cli::try_parse_from(words).map_err(|error| error.kind())?;
        match parsed.chaos {
            Chaos::ParameterServer { arguments } => Ok(arguments),
            Chaos::Serving(args) => panic!("{args:?}"),
        }
    }

    #[test]
    fn arguments_are_passed_on_as_they_are() {
        for line in [
            "",
            "--kills 5",
            "--kills=5 --registry etcd://a:1/b",
            "--kills 5 --help",
        ] {
            let words = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(passed_on(line), Ok(words), "{line}");
        }
        assert_eq!(passed_on("-- --help"), Ok(vec!["--help".to_owned()]));
        assert_eq!(passed_on("--help"), Err(ErrorKind::DisplayHelp), "its own");
    }
}
