//! `cargo xtask bench-loadgen`: how many requests/s the generator sends on time from one core, beside `wrk` from the same
//! core against the same server.
//!
//! The server answers every request with the same bytes and has a core of its own. The generator keeps a schedule, so the
//! figure that counts is the highest rate whose runs are valid; `wrk` sends as fast as answers come (closed loop), in C.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::demo::{self, binary};
use crate::{cargo, models, workspace};

/// Arguments of `cargo xtask bench-loadgen`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rates to try, in requests/s
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 10_000, 15_000, 20_000, 25_000, 30_000])]
    rates: Vec<u32>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Runs at each rate, with different seeds
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Core of the generator
    #[arg(long, default_value_t = 0)]
    core: u32,
    /// Core of the server
    #[arg(long, default_value_t = 1)]
    server_core: u32,
}

/// Runs the benchmark.
///
/// # Errors
/// If a step fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    cargo::run(&["build", "--release", "-p", "parapet-loadgen", "--bins", "--example", "trivial_server"])?;
    let server = Server::start(args.server_core)?;
    println!(
        "{:>12} {:>6} {:>14} {:>14} {:>12} {:>10}",
        "requests/s", "runs", "valid", "p99 lag, ms", "p50, ms", "failed"
    );
    for &rate in &args.rates {
        let reports: Vec<Value> =
            (1..=args.runs).map(|seed| server.load(args, rate, seed)).collect::<Result<_>>()?;
        let figures = |pointer: &str| -> String {
            let mut values: Vec<f64> =
                reports.iter().filter_map(|report| report.pointer(pointer)?.as_f64()).collect();
            values.sort_by(f64::total_cmp);
            match (values.first(), values.last()) {
                (Some(low), Some(high)) => format!("{low:.2} - {high:.2}"),
                _ => "-".to_owned(),
            }
        };
        let valid = reports.iter().filter(|report| report["valid"] == true).count();
        let failed: u64 = reports
            .iter()
            .filter_map(|report| {
                Some(report["counts"]["planned"].as_u64()? - report["counts"]["answered"].as_u64()?)
            })
            .sum();
        println!(
            "{rate:>12} {:>6} {valid:>14} {:>14} {:>12} {failed:>10}",
            reports.len(),
            figures("/lag/p99"),
            figures("/service/p50")
        );
    }
    match server.wrk(args)? {
        Some(line) => println!("wrk, one thread, 64 connections, same core: {line}"),
        None => println!("wrk is not installed; `apt-get install wrk` adds it to the comparison"),
    }
    Ok(())
}

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn on_core(core: u32, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

impl Server {
    fn start(core: u32) -> Result<Self> {
        let program = workspace::target().join("release/examples/trivial_server");
        let mut child = on_core(core, &program)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server; taskset (util-linux) is needed")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let server = Self { child, url: line.trim().to_owned() };
        ensure!(server.url.starts_with("http://"), "the server did not start");
        Ok(server)
    }

    fn load(&self, args: &Args, rate: u32, seed: u32) -> Result<Value> {
        let folder = demo::folder();
        fs::create_dir_all(&folder).context("cannot make .parapet/demo")?;
        let json = folder.join("loadgen.json");
        let status = on_core(args.core, &binary("parapet-loadgen"))
            .args(["run", "--target", &self.url, "--model", "trivial"])
            .args(["--rate", &rate.to_string(), "--duration", &args.seconds.to_string()])
            .args(["--seed", &seed.to_string(), "--images"])
            .arg(models::data().join("t10k-images-idx3-ubyte.gz"))
            .arg("--json")
            .arg(&json)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot start parapet-loadgen")?;
        ensure!(status.success(), "parapet-loadgen failed ({status})");
        serde_json::from_slice(&fs::read(&json)?).context("loadgen.json is no report")
    }

    /// What `wrk` reaches with the same bodies; `None` without it.
    fn wrk(&self, args: &Args) -> Result<Option<String>> {
        let query = demo::binary_query()?;
        let body = demo::folder().join("query.bin");
        fs::write(&body, &query.bytes).context("cannot write query.bin")?;
        let script = demo::folder().join("wrk.lua");
        let text = format!(
            "local file = io.open({:?}, \"rb\")\nwrk.method = \"POST\"\nwrk.body = file:read(\"*a\")\n\
             wrk.headers[\"Content-Type\"] = \"application/octet-stream\"\n\
             wrk.headers[\"Inference-Header-Content-Length\"] = \"{}\"\n",
            body.display().to_string(),
            query.header_length
        );
        fs::write(&script, text).context("cannot write wrk.lua")?;
        let output = on_core(args.core, Path::new("wrk"))
            .args(["-t1", "-c64", &format!("-d{}s", args.seconds), "-s"])
            .arg(&script)
            .arg(format!("{}/v2/models/trivial/infer", self.url))
            .output()
            .context("cannot start taskset")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find(|line| line.starts_with("Requests/sec"));
        Ok(line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}
