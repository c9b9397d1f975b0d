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
    /// Measure: each prints its figures and writes its section of a RESULTS.md
    #[command(subcommand)]
    Bench(Bench),
    /// Inject faults into a running cluster and judge every answer
    #[command(subcommand)]
    Chaos(Chaos),
    /// Check documents, deployment files and pages against running programs
    #[command(subcommand)]
    Check(Check),
    /// Cut hosts off (network namespaces); needs root and etcd
    #[command(subcommand)]
    Netns(Netns),
    /// Have real clients ask the frontend and the instance: tritonclient over HTTP and gRPC, curl
    Interop(interop::Args),
    /// Train while workers and servers join and leave
    ElasticTrain(elastic::Args),
    /// Pack the serving side as a tarball and as a Debian package
    Dist(dist::Args),
    /// Fetch libtorch (for the trainer) and ONNX Runtime (for serving) into `.native`
    Setup(native::Args),
    /// Run set-up, then every test of the workspace
    Test(test::Args),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The latency that the frontend adds, and its memory
    Serving(bench::serving::Args),
    /// The requests/s that the load generator sends on time
    Loadgen(bench::loadgen::Args),
    /// The simulator beside a real run
    Fidelity(bench::fidelity::Args),
    /// Three times the capacity for a minute
    Overload(bench::overload::Args),
    /// Push and pull of the parameter server, beside mxnet's kvstore
    ParameterServer(bench::parameter_server::Args),
    /// Training on a cluster of processes and in one process, in turns
    ClusterTraining(bench::cluster_training::Args),
    /// Gain of staleness in training while a worker is slow
    Staleness(bench::staleness::Args),
    /// The frontend as a proxy, beside nginx
    Proxy(bench::proxy::Args),
    /// Redundancy strategies on emulated instances
    Tail(bench::tail::Args),
    /// The trainer's steps/s beside PyTorch's Python
    Training(bench::training::Args),
}

#[derive(Debug, Subcommand)]
enum Chaos {
    /// Kill servers of a parameter-server cluster while a worker pushes
    ParameterServer(chaos::Args),
    /// Freeze, kill, spoil, reload and roll a serving cluster
    Serving(chaos_serving::Args),
}

#[derive(Debug, Subcommand)]
enum Check {
    /// Queries of the dashboard and the rules, by a real Prometheus that scrapes a real cluster
    Dashboards(dashboards::Args),
    /// Contents of deploy/: units, compose file, chart, configurations
    Deploy(deploy::Args),
    /// The live page in headless Chromium while instances freeze, and its switches
    LivePage(live_page::Args),
    /// Commands of the documentation, against a small cluster
    Docs(docs::Args),
}

#[derive(Debug, Subcommand)]
enum Netns {
    /// Train on three hosts while the leader's is cut off
    Train(netns::Args),
    /// Serve on three hosts while one is cut off; needs Prometheus, too
    Serve(netns_serve::Args),
}

fn main() -> ExitCode {
    let step = Cli::parse().step;
    let before = ProcessorTime::so_far();
    let is_measured = matches!(step, Step::Demo(_) | Step::Bench(_));
    let outcome = match step {
        Step::Bench(bench) => match bench {
            Bench::Serving(args) => bench::serving::run(&args),
            Bench::Loadgen(args) => bench::loadgen::run(&args),
            Bench::Fidelity(args) => bench::fidelity::run(&args),
            Bench::Overload(args) => bench::overload::run(&args),
            Bench::ClusterTraining(args) => bench::cluster_training::run(&args),
            Bench::ParameterServer(args) => bench::parameter_server::run(&args),
            Bench::Proxy(args) => bench::proxy::run(&args),
            Bench::Staleness(args) => bench::staleness::run(&args),
            Bench::Tail(args) => bench::tail::run(&args),
            Bench::Training(args) => bench::training::run(&args),
        },
        Step::Chaos(Chaos::ParameterServer(args)) => chaos::run(&args),
        Step::Chaos(Chaos::Serving(args)) => chaos_serving::run(&args),
        Step::Check(Check::Dashboards(args)) => dashboards::run(&args),
        Step::Check(Check::Deploy(args)) => deploy::run(&args),
        Step::Check(Check::Docs(args)) => docs::run(&args),
        Step::Check(Check::LivePage(args)) => live_page::run(&args),
        Step::Netns(Netns::Train(args)) => netns::run(&args),
        Step::Netns(Netns::Serve(args)) => netns_serve::run(&args),
        Step::Interop(args) => interop::run(&args),
        Step::ElasticTrain(args) => elastic::run(&args),
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
