//! `cargo xtask bench load-distribution`: unlike workers and servers; and `bench communication`:
//! gradients that travel while others are computed. They need root, for network namespaces.

use super::report;
use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only `workers` or `servers`
    #[arg(long)]
    only: Option<String>,
    /// More flags for a part, as its --help has them
    #[arg(last = true)]
    flags: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    for part in ["workers", "servers"] {
        if args.only.as_ref().is_none_or(|only| only == part) {
            let name = format!("load-distribution, {part}");
            measure(part, &args.flags, &name, &format!("Load distribution: {part}"))?;
        }
    }
    Ok(())
}

pub(super) fn communication() -> Result<()> {
    let title = "Wait-free backward pass, sufficient factors";
    measure("communication", &[], "communication", title)
}

fn measure(part: &str, flags: &[String], bench: &str, title: &str) -> Result<()> {
    cargo("build --release -p parapet-cluster --bins --example load-distribution")?;
    let (sh, program) = (shell()?, release("examples/load-distribution"));
    let text = cmd!(sh, "{program} {part}").args(flags).quiet().read()?;
    println!("{text}");
    let name = format!("cargo xtask bench {bench}");
    report::write(report::PARAMETER_SERVER, &name, &format!("### {title}\n\n{text}\n"))
}
