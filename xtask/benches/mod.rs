//! `cargo xtask bench`: benchmarks of the whole, timed by hand, never in a test.

mod instance;
mod load_distribution;
mod overload;
mod parameter_server;
mod peers;
mod processor;
mod proxy;
pub(crate) mod report;
mod serving;
mod staleness;
mod tail;

use crate::prelude::*;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The latency that the frontend adds, and its memory
    Serving(serving::Args),
    /// An instance beside ONNX Runtime alone
    Instance,
    /// Three times the capacity for a minute
    Overload,
    /// Push and pull of the parameter server, beside mxnet's kvstore
    ParameterServer(parameter_server::Args),
    /// Workers and servers of a training that are not alike
    LoadDistribution(load_distribution::Args),
    /// Gradients of a training that travel while others are computed, behind slow links
    Communication,
    /// Gain of staleness in training while a worker is slow
    Staleness(staleness::Args),
    /// The frontend as a proxy, beside nginx
    Proxy(proxy::Args),
    /// Redundancy strategies on emulated instances
    Tail(tail::Args),
}

pub(crate) fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Serving(args) => serving::run(args),
        Bench::Instance => instance::run(),
        Bench::Overload => overload::run(),
        Bench::ParameterServer(args) => parameter_server::run(args),
        Bench::LoadDistribution(args) => load_distribution::run(args),
        Bench::Communication => load_distribution::communication(),
        Bench::Staleness(args) => staleness::run(args),
        Bench::Proxy(args) => proxy::run(args),
        Bench::Tail(args) => tail::run(args),
    }
}

fn build_serving() -> Result<()> {
    setup::run(&setup::Args { serving_only: true })?;
    cargo("build --release -p parapet-frontend -p parapet-models -p parapet-loadgen")
}

/// Builds the serving side and emulated instances, and makes sure that the demo's models are there.
fn prepare() -> Result<()> {
    build_serving()?;
    cargo("build --release -p parapet-loadgen --example trivial_server")?;
    models::require()
}

/// Configuration of a frontend for the demo's models here, coded if there are parity instances.
fn configuration(deployed: &[String], parity: &[String], slots: u32) -> String {
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[repository]\npath = {:?}\n\
         [[models]]\nname = \"fashion\"\ninstances = {deployed:?}\nslots_per_instance = {slots}\n",
        models::repository()
    );
    if !parity.is_empty() {
        text += &format!(
            "[models.strategy]\nkind = \"coded\"\nencoder = \"stack\"\nk = 2\n\
             [[models.strategy.parity]]\nmodel = \"fashion-parity\"\ninstances = {parity:?}\n\
             slots_per_instance = {slots}\n"
        );
    }
    text
}
