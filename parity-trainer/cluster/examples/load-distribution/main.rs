//! Load distribution over workers and servers that are not alike: `cargo xtask bench
//! load-distribution` runs both parts and writes the tables.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an example")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod servers;
mod workers;

use clap::Parser;

#[derive(Debug, Parser)]
enum Command {
    /// One of four processes computes four times slower
    Workers,
    /// One of four servers has an eighth of the others' bandwidth
    Servers(servers::Args),
    /// The worker of a run of `servers`
    Push(servers::Push),
}

#[tokio::main]
async fn main() {
    match Command::parse() {
        Command::Workers => workers::bench().await,
        Command::Servers(args) => servers::bench(&args),
        Command::Push(args) => args.run().await,
    }
}
