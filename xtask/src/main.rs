//! Parapet's set-up, demo, test and CI steps: `cargo xtask <step>`.
//!
//! Each step is a module with an `Args` and a `run`; this file only dispatches.

mod bench;
mod cargo;
mod chaos;
mod chaos_serving;
mod dashboards;
mod demo;
mod deploy;
mod dist;
mod docs;
mod elastic;
mod http;
mod interop;
mod live_page;
mod models;
mod native;
mod netns;
mod netns_serve;
mod openssl;
mod processes;
mod python;
mod resources;
mod sample;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use resources::ProcessorTime;

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
    /// Offer three times the capacity for a minute, and see what becomes of it
    BenchOverload(bench::overload::Args),
    /// Measure push and pull of the parameter server, beside mxnet's kvstore
    BenchParameterServer(bench::parameter_server::Args),
    /// Train on a cluster of processes and in one process, in turns
    BenchClusterTraining(bench::cluster_training::Args),
    /// Measure what staleness buys in training while a worker is slow
    BenchStaleness(bench::staleness::Args),
    /// Measure the frontend as a proxy, beside nginx
    BenchProxy(bench::proxy::Args),
    /// Compare redundancy strategies on emulated instances
    BenchTail(bench::tail::Args),
    /// Measure the trainer's steps/s beside PyTorch's Python
    BenchTraining(bench::training::Args),
    /// Run the dashboard's and the rules' queries against a real Prometheus that scrapes a real
    /// cluster
    CheckDashboards(dashboards::Args),
    /// Check what is in deploy/: units, compose file, chart, configurations
    CheckDeploy(deploy::Args),
    /// Look at the live page in headless Chromium while instances freeze, and throw its switches
    CheckLivePage(live_page::Args),
    /// Run the commands of the documentation against a small cluster
    CheckDocs(docs::Args),
    /// Kill servers of a parameter-server cluster while a worker pushes
    ChaosParameterServer(chaos::Args),
    /// Freeze, kill, spoil, reload and roll a serving cluster, and judge every answer
    ChaosServing(chaos_serving::Args),
    /// Have real clients ask the frontend and the instance: tritonclient over HTTP and gRPC, curl
    Interop(interop::Args),
    /// Train while workers and servers join and leave
    ElasticTrain(elastic::Args),
    /// Train on three hosts (network namespaces) while the leader's is cut off; needs root and etcd
    NetnsTrain(netns::Args),
    /// Serve on three hosts (network namespaces) while one is cut off; needs root, etcd and
    /// Prometheus
    NetnsServe(netns_serve::Args),
    /// Pack the serving side as a tarball and as a Debian package
    Dist(dist::Args),
    /// Fetch libtorch (for the trainer) and ONNX Runtime (for serving) into `.native`
    Setup(native::Args),
    /// Run set-up, then every test of the workspace
    Test(test::Args),
}

impl Step {
    /// Whether figures come of it.
    const fn is_measured(&self) -> bool {
        matches!(
            self,
            Self::Demo(_)
                | Self::BenchServing(_)
                | Self::BenchLoadgen(_)
                | Self::BenchFidelity(_)
                | Self::BenchOverload(_)
                | Self::BenchParameterServer(_)
                | Self::BenchClusterTraining(_)
                | Self::BenchStaleness(_)
                | Self::BenchProxy(_)
                | Self::BenchTail(_)
                | Self::BenchTraining(_)
        )
    }
}

fn main() -> ExitCode {
    let step = Cli::parse().step;
    let before = ProcessorTime::so_far();
    let is_measured = step.is_measured();
    let outcome = match step {
        Step::BenchServing(args) => bench::serving::run(&args),
        Step::BenchLoadgen(args) => bench::loadgen::run(&args),
        Step::BenchFidelity(args) => bench::fidelity::run(&args),
        Step::BenchOverload(args) => bench::overload::run(&args),
        Step::BenchClusterTraining(args) => bench::cluster_training::run(&args),
        Step::BenchParameterServer(args) => bench::parameter_server::run(&args),
        Step::BenchProxy(args) => bench::proxy::run(&args),
        Step::BenchStaleness(args) => bench::staleness::run(&args),
        Step::BenchTail(args) => bench::tail::run(&args),
        Step::BenchTraining(args) => bench::training::run(&args),
        Step::CheckDashboards(args) => dashboards::run(&args),
        Step::CheckDeploy(args) => deploy::run(&args),
        Step::CheckDocs(args) => docs::run(&args),
        Step::CheckLivePage(args) => live_page::run(&args),
        Step::ChaosParameterServer(args) => chaos::run(&args),
        Step::ChaosServing(args) => chaos_serving::run(&args),
        Step::Interop(args) => interop::run(&args),
        Step::ElasticTrain(args) => elastic::run(&args),
        Step::NetnsTrain(args) => netns::run(&args),
        Step::NetnsServe(args) => netns_serve::run(&args),
        Step::Demo(args) => demo::run(&args),
        Step::Dist(args) => dist::run(&args),
        Step::Setup(args) => native::run(&args),
        Step::Test(args) => test::run(&args),
    };
    if is_measured {
        // Figures of a machine that was elsewhere half of the time say little.
        println!("Meanwhile {}.", ProcessorTime::so_far().since(&before));
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
