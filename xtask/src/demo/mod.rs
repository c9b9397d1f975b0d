//! `cargo xtask demo`: trains a deployed and a parity model on the Fashion-MNIST subset that the
//! repository carries, serves them as processes on this machine, and sends the same requests under
//! the same faults without coding and with it.

mod faults;
mod table;

use crate::cluster::Cluster;
use crate::models::Model;
use crate::prelude::*;
use faults::{PARITY, Planned, REPLICAS};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::net::TcpListener;

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
    /// Added to every port (8080, 9001 to 9004, 9101, 9102)
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..50_000))]
    port_offset: u16,
}

/// Requests/s, and seconds of each of the two runs.
const RATE: f64 = 200.0;
const SECONDS: u32 = 30;
const OFFSET: &str = "--port-offset moves this one";
/// Ports of the replicas, of the parity instances, and of the frontend.
const PORTS: [u16; REPLICAS + PARITY + 1] = [9001, 9002, 9003, 9004, 9101, 9102, 8080];

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.stop {
        return stop_kept();
    }
    setup::run(&setup::Args::default())?;
    step("building the serving side and the trainer");
    // In one invocation, so that each package is compiled once, and not incrementally, which a
    // clone gains nothing by. The development profile optimises what computes, and skips the rest.
    let serving = "-p parapet-frontend -p parapet-models -p parapet-loadgen";
    let once = "--config build.incremental=false";
    cargo(&format!("build {once} --bins {serving} -p parity-trainer"))?;

    let started = Instant::now();
    let models = [Model::deployed(), Model::parity((2, 1))];
    models::train(&models, args.reuse_models)?;
    let faults = faults::plan(1, Duration::from_secs(SECONDS.into()));
    step(&format!(
        "{RATE} requests/s for {SECONDS} s, twice: {}; one replica killed half-way",
        faults::describe(&faults)
    ));
    let plain = measure(args, "none", &faults)?;
    let coded = measure(args, "coded", &faults)?;
    let entry = shell()?.read_file(models::repository().join("fashion-parity/model.toml"))?;
    let text = table::render(&plain, &coded, &faults)? + &table::accuracy(&entry);
    println!("\n{text}");
    shell()?.write_file(scratch("demo/table.txt"), &text)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("All of it took {seconds:.0} s after compilation.\n");

    let lines = write_queries(args)?;
    if args.keep {
        let pids = start(args, "coded")?.processes.detach();
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        shell()?.write_file(pid_file(), pids.join("\n"))?;
        println!(
            "The cluster is left running (`cargo xtask demo --stop` ends it). Try:\n\n{lines}"
        );
    } else {
        println!(
            "To try it by hand, `cargo xtask demo --keep --reuse-models` leaves it running; \
             then:\n\n{lines}"
        );
    }
    table::check(&coded)
}

/// The demo's configuration with a strategy; the coded one is deploy/local/parapet.toml itself.
fn configuration(args: &Args, strategy: &str) -> Result<String> {
    let mut text = shell()?.read_file("deploy/local/parapet.toml")?;
    if strategy == "none" {
        text.truncate(text.find("[models.strategy]").context("no [models.strategy]")?);
    }
    for port in PORTS {
        let moved = port + args.port_offset;
        text = text.replace(&format!(":{port}\""), &format!(":{moved}\""));
    }
    Ok(text.replace("../../.parapet/demo/models", "../../models"))
}

fn start(args: &Args, strategy: &str) -> Result<Cluster> {
    step(&format!(
        "starting {REPLICAS} replicas, {PARITY} parity instances and the frontend ({strategy})"
    ));
    let ports = PORTS.map(|port| port + args.port_offset);
    for port in ports {
        let free = TcpListener::bind(("127.0.0.1", port));
        free.with_context(|| format!("port {port}: `--stop` ends an earlier demo, {OFFSET}"))?;
    }
    let logs = scratch(&format!("demo/logs/{strategy}"));
    let mut cluster = Cluster::new(debug(""), &logs, &models::repository())?;
    for (index, port) in ports.iter().take(REPLICAS + PARITY).enumerate() {
        let suffix = if index < REPLICAS { "" } else { "-parity" };
        let (model, listen) = (format!("fashion{suffix}"), format!("127.0.0.1:{port}"));
        cluster.instance(&Place::Anywhere, (&instance(index), &model, &listen), &[])?;
    }
    cluster.frontend(&Place::Anywhere, strategy, &configuration(args, strategy)?)?;
    Ok(cluster)
}

fn instance(index: usize) -> String {
    format!("instance-{index}")
}

/// Sends the load to a cluster with this strategy and inflicts the faults; returns the report.
fn measure(args: &Args, strategy: &str, faults: &[Planned]) -> Result<Value> {
    let mut cluster = start(args, strategy)?;
    let (sh, program) = (shell()?, debug("parapet-loadgen"));
    let address = format!("127.0.0.1:{}", 8080 + args.port_offset);
    let labels = data().join("t10k-labels-idx1-ubyte.gz");
    let report = scratch("load.json");
    let load = |seconds| {
        let (target, pace) = ((address.as_str(), "fashion"), (RATE, seconds));
        let load = models::load_command(cmd!(sh, "{program}"), target, pace, &report);
        load.args(["--arrivals=constant", "--labels"]).arg(&labels)
    };
    // Opens connections, fills caches and learns the hold-back.
    cluster.processes.run("warm-up", load(3))?;

    step(&format!("sending {RATE} requests/s ({strategy})"));
    let mut generator = std::process::Command::from(load(SECONDS)).spawn()?;
    let started = Instant::now();
    for fault in faults {
        std::thread::sleep(fault.at.saturating_sub(started.elapsed()));
        cluster.processes.signal(&instance(fault.instance), fault.signal)?;
    }
    let status = generator.wait().context("parapet-loadgen is gone")?;
    ensure!(status.success(), "parapet-loadgen failed ({status})");
    read_json(&report)
}

/// Writes the first test image as a JSON and as a binary body; returns the lines that send them.
fn write_queries(args: &Args) -> Result<String> {
    let (sh, (binary, header_length)) = (shell()?, models::binary_query()?);
    sh.write_file(scratch("demo/query.json"), models::json_query()?)?;
    sh.write_file(scratch("demo/query.bin"), binary)?;
    let port = 8080 + args.port_offset;
    let url = format!("http://127.0.0.1:{port}/v2/models/fashion/infer");
    Ok(format!(
        "curl -i {url} -d @.parapet/demo/query.json\n\
         curl -i {url} -H 'Inference-Header-Content-Length: {header_length}' --data-binary \
         @.parapet/demo/query.bin\n"
    ))
}

fn pid_file() -> PathBuf {
    scratch("demo/pids")
}

fn stop_kept() -> Result<()> {
    let sh = shell()?;
    let Ok(pids) = sh.read_file(pid_file()) else {
        println!("nothing was left running");
        return Ok(());
    };
    for pid in pids.lines().filter_map(|line| line.parse::<i32>().ok()) {
        // Only if it is still one of ours: pids are used again.
        let name = sh.read_file(format!("/proc/{pid}/comm"));
        if name.is_ok_and(|name| name.starts_with("parapet-")) {
            kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("process {pid}"))?;
        }
    }
    sh.remove_path(pid_file())?;
    println!("stopped");
    Ok(())
}
