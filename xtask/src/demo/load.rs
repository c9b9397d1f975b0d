//! The demo's load, with the faults beside it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Args;
use super::cluster::DemoCluster;
use super::faults::Planned;
use crate::workspace::{demo as folder, step};
use crate::{sample, workspace};

/// Seconds of load before a run, for connections, caches and the learned hold-back.
const WARM_UP_SECONDS: u32 = 3;

fn generator(cluster: &DemoCluster, rate: f64, seconds: u32, seed: u64) -> Command {
    let data = workspace::root().join("deploy/local/data/fashion2k");
    let mut command = Command::new(sample::binary("parapet-loadgen"));
    command
        .args([
            "run",
            "--target",
            &cluster.url(),
            "--model",
            "fashion",
            "--arrivals",
            "constant",
        ])
        .args([
            "--rate",
            &rate.to_string(),
            "--duration",
            &seconds.to_string(),
            "--seed",
            &seed.to_string(),
        ])
        .arg("--images")
        .arg(data.join("t10k-images-idx3-ubyte.gz"))
        .arg("--labels")
        .arg(data.join("t10k-labels-idx1-ubyte.gz"));
    command
}

pub(crate) fn warm_up(cluster: &DemoCluster, rate: f64) -> Result<()> {
    let output = generator(cluster, rate, WARM_UP_SECONDS, 0)
        .output()
        .context("cannot start parapet-loadgen")?;
    ensure!(
        output.status.success(),
        "warming up failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Sends the load, inflicts the faults at their times, and returns the report.
pub(crate) fn run(cluster: &mut DemoCluster, faults: &[Planned], args: &Args) -> Result<Value> {
    step(&format!(
        "sending {} requests/s ({})",
        args.rate,
        cluster.mode().name()
    ));
    let report: PathBuf = folder().join(format!("{}.json", cluster.mode().name()));
    let _ = fs::remove_file(&report);
    let mut load = generator(cluster, args.rate, args.seconds, args.seed)
        .arg("--json")
        .arg(&report)
        .stdout(std::process::Stdio::null())
        .spawn()
        .context("cannot start parapet-loadgen")?;
    let started = Instant::now();
    for fault in faults {
        std::thread::sleep(fault.at.saturating_sub(started.elapsed()));
        cluster.inflict(fault.instance, fault.fault);
    }
    let limit = Duration::from_secs(u64::from(args.seconds) + 30);
    let status = loop {
        if let Some(status) = load.try_wait().context("parapet-loadgen is gone")? {
            break status;
        }
        if started.elapsed() > limit {
            let _ = load.kill();
            anyhow::bail!("parapet-loadgen did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    ensure!(status.success(), "parapet-loadgen failed ({status})");
    let text = fs::read(&report).with_context(|| format!("cannot read {}", report.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no report", report.display()))
}
