//! `cargo xtask bench load-distribution`: workers and servers that are not alike. It needs root, for
//! network namespaces.

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
    cargo("build --release -p parapet-cluster --bins --example load-distribution")?;
    let (sh, program) = (shell()?, release("examples/load-distribution"));
    for part in ["workers", "servers"] {
        if args.only.as_ref().is_some_and(|only| only != part) {
            continue;
        }
        let text = cmd!(sh, "{program} {part}").args(&args.flags).quiet().read()?;
        println!("{text}");
        let name = format!("cargo xtask bench load-distribution, {part}");
        let title = format!("### Load distribution: {part}\n\n{text}\n");
        report::write(report::PARAMETER_SERVER, &name, &title)?;
    }
    Ok(())
}
