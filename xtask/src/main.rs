//! Parapet's set-up, demo, test and CI steps: `cargo xtask <step>`.
//!
//! Each step is a module with an `Args` and a `run`; this file only dispatches.

mod bench;
mod cargo;
mod chaos;
mod demo;
mod elastic;
mod models;
mod native;
mod netns;
mod processes;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Parapet: set-up, demo, test and CI steps.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Train, serve and compare: requests under faults, without coding and with it
    Demo(demo::Args),
    /// Measure the latency that the frontend adds, and its memory
    BenchServing(bench::serving::Args),
    /// Measure how many requests/s the load generator sends on time
    BenchLoadgen(bench::loadgen::Args),
    /// Compare the simulator with a real run
    BenchFidelity(bench::fidelity::Args),
    /// Measure push and pull of the parameter server, beside mxnet's kvstore
    BenchParameterServer(bench::parameter_server::Args),
    /// Train on a cluster of processes and in one process, in turns
    BenchClusterTraining(bench::cluster_training::Args),
    /// Measure what staleness buys in training while a worker is slow
    BenchStaleness(bench::staleness::Args),
    /// Compare redundancy strategies on emulated instances
    BenchTail(bench::tail::Args),
    /// Measure the trainer's steps/s beside PyTorch's Python
    BenchTraining(bench::training::Args),
    /// Kill servers of a parameter-server cluster while a worker pushes
    ChaosParameterServer(chaos::Args),
    /// Train while workers and servers join and leave
    ElasticTrain(elastic::Args),
    /// Train on three hosts (network namespaces) while the leader's is cut off; needs root and etcd
    NetnsTrain(netns::Args),
    /// Fetch libtorch (for the trainer) and ONNX Runtime (for serving) into `.native`
    Setup(native::Args),
    /// Run set-up, then every test of the workspace
    Test(test::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().step {
        Step::BenchServing(args) => bench::serving::run(&args),
        Step::BenchLoadgen(args) => bench::loadgen::run(&args),
        Step::BenchFidelity(args) => bench::fidelity::run(&args),
        Step::BenchClusterTraining(args) => bench::cluster_training::run(&args),
        Step::BenchParameterServer(args) => bench::parameter_server::run(&args),
        Step::BenchStaleness(args) => bench::staleness::run(&args),
        Step::BenchTail(args) => bench::tail::run(&args),
        Step::BenchTraining(args) => bench::training::run(&args),
        Step::ChaosParameterServer(args) => chaos::run(&args),
        Step::ElasticTrain(args) => elastic::run(&args),
        Step::NetnsTrain(args) => netns::run(&args),
        Step::Demo(args) => demo::run(&args),
        Step::Setup(args) => native::run(&args),
        Step::Test(args) => test::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
