//! Load distribution over workers and servers that are not alike, and communication that hides:
//! `cargo xtask bench load-distribution` and `communication` run the parts and write the tables.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an example")]

#[path = "../../tests/support/mod.rs"]
mod support;

mod communication;
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
    /// Gradients that travel while others are computed
    Communication(communication::Args),
    /// A worker of a run of `communication`
    Work(communication::Work),
}

#[tokio::main]
async fn main() {
    match Command::parse() {
        Command::Workers => workers::bench().await,
        Command::Servers(args) => servers::bench(&args),
        Command::Push(args) => args.run().await,
        Command::Communication(args) => communication::bench(&args),
        Command::Work(args) => args.run().await,
    }
}
