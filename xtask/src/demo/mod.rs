//! `cargo xtask demo`: trains a deployed and a parity model on the Fashion-MNIST subset that the
//! repository carries, serves them as processes on this machine, and sends the same requests under
//! the same faults without coding and with it.

mod cluster;
mod faults;
mod load;
mod query;
mod table;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub(crate) use self::cluster::{DemoCluster, Mode, Ports, binary};
pub(crate) use self::query::binary_query;
use crate::models::{self, Model};
use crate::workspace::{demo as folder, step};
use crate::{cargo, native};

/// Arguments of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the coded cluster running at the end; `--stop` ends it
    #[arg(long)]
    keep: bool,
    /// Stop what an earlier `--keep` left running, and do nothing else
    #[arg(long)]
    stop: bool,
    /// Use the models of an earlier run instead of training
    #[arg(long)]
    reuse_models: bool,
    /// Seed of the training, the requests and the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Requests per second
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Seconds of load for each of the two runs
    #[arg(long, default_value_t = 40)]
    seconds: u32,
    /// Added to every port (8080, 9001 to 9004, 9101, 9102)
    #[arg(long, default_value_t = 0)]
    port_offset: u16,
}

/// Runs the demo.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.stop {
        return cluster::stop_kept();
    }
    ensure!(
        args.seconds >= 4,
        "--seconds {}: give at least 4",
        args.seconds
    );
    ensure!(
        args.rate >= 1.0 && args.rate <= 5000.0,
        "--rate {}: give 1 to 5000",
        args.rate
    );
    native::run(&native::Args::default())?;
    step("building the serving side and the trainer");
    cargo::build_for_demo()?;

    let started = Instant::now();
    fs::create_dir_all(folder().join("logs")).context("cannot make .parapet/demo/logs")?;
    models::train(
        &[Model::Deployed, Model::Parity { k: 2 }],
        args.seed,
        args.reuse_models,
    )?;
    let ports = Ports::new(args.port_offset);
    let span = Duration::from_secs(u64::from(args.seconds));
    let faults = faults::plan(args.seed, span);
    step(&format!(
        "{} requests/s for {} s, twice: {}; one replica killed half-way",
        args.rate,
        args.seconds,
        faults::describe(&faults)
    ));
    let mut reports = Vec::new();
    for mode in [Mode::Plain, Mode::Coded] {
        let mut cluster = DemoCluster::start(mode, ports)?;
        load::warm_up(&cluster, args.rate)?;
        reports.push(load::run(&mut cluster, &faults, args)?);
        cluster.stop();
    }
    let [plain, coded] = reports.as_slice() else {
        unreachable!("two modes")
    };
    let text = table::render(plain, coded, &faults)?;
    println!("\n{text}");
    fs::write(folder().join("table.txt"), &text).context("cannot write .parapet/demo/table.txt")?;
    println!(
        "All of it took {:.0} s after compilation.\n",
        started.elapsed().as_secs_f64()
    );

    let lines = query::write(ports)?;
    if args.keep {
        DemoCluster::start(Mode::Coded, ports)?.keep()?;
        println!(
            "The cluster is left running (`cargo xtask demo --stop` ends it). Try:\n\n{lines}"
        );
    } else {
        println!(
            "To try it by hand, `cargo xtask demo --keep --reuse-models` leaves it running; \
                then:\n\n{lines}"
        );
    }
    table::check(coded)
}
