//! `cargo xtask bench-serving`: what the frontend adds to a request's latency, and the memory that it takes.
//!
//! Rounds to an instance directly and through the frontend take turns, so that a machine whose speed drifts drifts for
//! both. Needs the models of `cargo xtask demo`.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::demo::{self, Cluster, Mode, Ports, binary};
use crate::{cargo, native, workspace};

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
    cargo::run(&[
        "build",
        "--release",
        "-p",
        "parapet-frontend",
        "-p",
        "parapet-models",
        "-p",
        "parapet-loadgen",
    ])?;
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
    let cluster = Cluster::start(mode, Ports::new(args.port_offset))?;
    let targets = [("instance", cluster.instance_url(0)), ("frontend", cluster.url())];
    let mut rounds: Vec<(f64, f64)> = Vec::new();
    for (_, url) in &targets {
        load(url, args.rate, 1)?;
    }
    for _ in 0..args.rounds {
        let [direct, through] = [&targets[0].1, &targets[1].1].map(|url| load(url, args.rate, args.seconds));
        rounds.push((service_p50_us(&direct?)?, service_p50_us(&through?)?));
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    println!("p50 from send to answer, binary tensors, {} requests/s, strategy {}:", args.rate, mode.name());
    for (direct, through) in &rounds {
        println!(
            "  instance {direct:6.0} us   frontend {through:6.0} us   added {:6.0} us",
            through - direct
        );
    }
    println!(
        "  median added: {:.0} us",
        median(rounds.iter().map(|(direct, through)| through - direct).collect())
    );
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
