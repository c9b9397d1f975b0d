//! `cargo xtask bench-serving`: what the frontend adds to a request's latency, and the memory that it takes.
//!
//! Latency is measured in two ways. In a closed loop one client waits for each answer before it sends again, so that cores
//! hardly sleep: what the code costs. In an open loop requests come on a schedule whatever the answers do, and a mostly idle
//! machine wakes sleeping cores for each: what a lightly loaded deployment sees.
//!
//! With coding, a parity instance works while the next request is served. Where both share this machine's cores, as in the
//! demo, that slows an instance down whoever sends it the requests; a third table has the parity instance at work beside the
//! instance in both rounds, so that what remains is the frontend's.
//!
//! Rounds to an instance directly and through the frontend take turns, so that a machine whose speed drifts drifts for
//! both. Needs the models of `cargo xtask demo`.

mod closed_loop;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::demo::{self, Cluster, Mode, Ports, binary};
use crate::{cargo, native, workspace};

/// Queries in a coding group of the demo's configuration.
const GROUP: usize = 2;

/// Arguments of `cargo xtask bench-serving`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds to each target
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Requests per second of the latency rounds
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Seconds of each latency round
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Requests per second while memory is watched
    #[arg(long, default_value_t = 2000)]
    memory_rate: u32,
    /// Seconds for which memory is watched; 0 for not at all
    #[arg(long, default_value_t = 60)]
    memory_seconds: u32,
    /// Added to every port of the demo
    #[arg(long, default_value_t = 0)]
    port_offset: u16,
}

/// Runs the benchmark.
///
/// # Errors
/// If a step fails or there are no models.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args { serving_only: true })?;
    cargo::build_serving()?;
    ensure!(
        demo::folder().join("models/fashion-parity/model.toml").is_file(),
        "no models; run `cargo xtask demo` first"
    );
    for mode in [Mode::Plain, Mode::Coded] {
        latency(args, mode)?;
    }
    if args.memory_seconds > 0 {
        memory(args)?;
    }
    Ok(())
}

fn latency(args: &Args, mode: Mode) -> Result<()> {
    let ports = Ports::new(args.port_offset);
    let cluster = Cluster::start(mode, ports)?;
    let [direct, through] = [cluster.instance_url(0), cluster.url()];
    let body = demo::binary_query()?;
    let client = |url: &str, model: &str| {
        let authority = url.trim_start_matches("http://");
        let path = format!("/v2/models/{model}/infer");
        closed_loop::Client::connect(authority, &path, &body.bytes, body.header_length)
    };
    let (mut to_instance, mut to_frontend) = (client(&direct, "fashion")?, client(&through, "fashion")?);
    let span = Duration::from_secs(u64::from(args.seconds));
    let strategy = mode.name();
    report(
        &format!("p50 of a request, binary tensors, strategy {strategy}, closed loop"),
        args.rounds,
        || Ok((closed_loop::p50_us(to_instance.run(span)?), closed_loop::p50_us(to_frontend.run(span)?))),
    )?;
    if mode == Mode::Coded {
        let mut to_parity = client(&cluster.parity_url(), "fashion-parity")?;
        report(
            "the same, with a parity instance at work beside the instance as beside the frontend",
            args.rounds,
            || {
                let beside = to_instance.run_beside(&mut to_parity, GROUP, span)?;
                Ok((closed_loop::p50_us(beside), closed_loop::p50_us(to_frontend.run(span)?)))
            },
        )?;
    }
    drop((to_instance, to_frontend));
    load(&through, args.rate, 1)?;
    report(&format!("the same, open loop at {} requests/s", args.rate), args.rounds, || {
        let round = |url: &str| service_p50_us(&load(url, args.rate, args.seconds)?);
        Ok((round(&direct)?, round(&through)?))
    })
}

/// Prints rounds of (instance, frontend) and the median of what the frontend added, in microseconds.
fn report(title: &str, rounds: u32, mut round: impl FnMut() -> Result<(f64, f64)>) -> Result<()> {
    println!("{title}:");
    let mut added = Vec::new();
    for _ in 0..rounds {
        let (direct, through) = round()?;
        added.push(through - direct);
        println!(
            "  instance {direct:6.0} us   frontend {through:6.0} us   added {:6.0} us",
            through - direct
        );
    }
    added.sort_by(f64::total_cmp);
    println!("  median added: {:.0} us", added.get(added.len() / 2).copied().unwrap_or(f64::NAN));
    Ok(())
}

fn memory(args: &Args) -> Result<()> {
    let cluster = Cluster::start(Mode::Coded, Ports::new(args.port_offset))?;
    let pid = cluster.frontend_pid();
    println!("resident memory of the frontend (coded) at {} requests/s:", args.memory_rate);
    println!("  at the start {:6.1} MB", resident_mb(pid)?);
    let parts = 6;
    for part in 1..=parts {
        let seconds = (args.memory_seconds / parts).max(1);
        let report = load(&cluster.url(), args.memory_rate, seconds)?;
        let counts = &report["counts"];
        println!(
            "  after {:3} s   {:6.1} MB   ({} answered, {} failed)",
            part * seconds,
            resident_mb(pid)?,
            counts["answered"],
            counts["failed"]
        );
    }
    Ok(())
}

fn load(url: &str, rate: u32, seconds: u32) -> Result<Value> {
    let data = workspace::root().join("deploy/local/data/fashion2k");
    let report = demo::folder().join("bench.json");
    let status = Command::new(binary("parapet-loadgen"))
        .args(["run", "--target", url, "--model", "fashion", "--arrivals", "constant"])
        .args(["--rate", &rate.to_string(), "--duration", &seconds.to_string()])
        .arg("--images")
        .arg(data.join("t10k-images-idx3-ubyte.gz"))
        .arg("--json")
        .arg(&report)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start parapet-loadgen")?;
    ensure!(status.success(), "parapet-loadgen failed ({status})");
    serde_json::from_slice(&fs::read(&report)?).context("bench.json is no report")
}

fn service_p50_us(report: &Value) -> Result<f64> {
    Ok(report.pointer("/service/p50").and_then(Value::as_f64).context("a report without answers")? * 1e3)
}

fn resident_mb(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the frontend is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
