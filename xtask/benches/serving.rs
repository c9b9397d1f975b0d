//! `cargo xtask bench serving`: what the frontend adds to a request's latency, and its memory.
//!
//! In a closed loop one client waits for each answer before it sends again, so that cores hardly
//! sleep; at a fixed rate a mostly idle machine wakes sleeping cores for each request. Instances
//! are called in turns, as the frontend does: one that has just computed is some 40 us faster than
//! one that has slept. A parity model computes on the cores of all the others here, and on a
//! machine of its own does not: coding is measured with parity instances of both kinds. Where nginx
//! is installed it stands beside. Targets take turns. Needs the models of the demo.

use super::peers::{self, Query};
use super::report::{Spread, in_turns};
use super::{configuration, prepare};
use crate::cluster::Cluster;
use crate::prelude::*;
use crate::process::memory;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds to each target
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds for which memory is watched; 0 for not at all
    #[arg(long, default_value_t = 60)]
    memory_seconds: u32,
}

const RATE: u32 = 500;
const SECONDS: u64 = 4;

pub(super) fn run(args: &Args) -> Result<()> {
    prepare()?;
    let mut cluster = Cluster::for_bench(&scratch("bench-serving"))?;
    let deployed = cluster.instances("fashion", 4, &[])?;
    let parity = cluster.instances("fashion-parity", 2, &[])?;
    latency(args, &mut cluster, &deployed, &parity)?;
    if args.memory_seconds > 0 {
        watch_memory(args, &mut cluster, &demo_configuration(&deployed, &parity))?;
    }
    Ok(())
}

fn demo_configuration(deployed: &[String], parity: &[String]) -> String {
    let hold_back = "hold_back = { percentile = 0.95, min_ms = 4, max_ms = 50 }";
    let settings = format!("k = 2\nflush_after_ms = 5\n{hold_back}\n");
    configuration(deployed, parity, 1).replace("k = 2\n", &settings)
}

fn latency(
    args: &Args,
    cluster: &mut Cluster,
    deployed: &[String],
    parity: &[String],
) -> Result<()> {
    let query = Query::new()?;
    let computing = time_requests(&query, &parity[..1], "fashion-parity", None, 1)?;
    let computing = Duration::from_secs_f64(computing * 1e-6);
    let processes = &mut cluster.processes;
    let elsewhere = peers::start_emulated(processes, "fashion-parity", 2, computing)?;
    let [none, coded, coded_elsewhere] =
        [&[][..], parity, &elsewhere].map(|parity| demo_configuration(deployed, parity));
    let mut targets = vec![("instances", deployed.to_vec())];
    for (name, config) in
        [("none", none), ("coded", coded), ("coded, parity elsewhere", coded_elsewhere)]
    {
        targets.push((name, vec![cluster.frontend(&Place::Anywhere, name, &config)?]));
    }
    if is_installed("nginx") {
        let folder = scratch("bench-serving");
        let processes = &mut cluster.processes;
        let [nginx, _] = peers::start_nginx(processes, &folder, deployed, &Place::Anywhere)?;
        targets.push(("nginx", vec![nginx]));
    }
    for rate in [None, Some(RATE)] {
        let pace = rate.map(|rate| format!("{rate} requests/s"));
        let pace = pace.unwrap_or_else(|| "closed loop".to_owned());
        println!("p50 of a request in microseconds, binary tensors, {pace}:");
        let times = in_turns(args.rounds, targets.len(), |round, target| {
            let (name, addresses) = &targets[target];
            let p50 = time_requests(&query, addresses, "fashion", rate, SECONDS)?;
            println!("  round {round}: {name} {p50:.0}");
            Ok(p50)
        })?;
        println!("  median of what each adds to the instances:");
        for ((name, _), through) in targets.iter().zip(&times).skip(1) {
            let added = through.iter().zip(&times[0]).map(|(p50, direct)| p50 - direct);
            println!("    {name:24} {:4.0}", Spread::new(added).median);
        }
    }
    Ok(())
}

/// Sends requests to the servers at these addresses in turns, one at a time: when the last one was
/// answered, or so many a second, of which those that an answer delays are sent at once after it.
/// Returns the median of their times, in microseconds.
fn time_requests(
    query: &Query,
    addresses: &[String],
    model: &str,
    rate: Option<u32>,
    seconds: u64,
) -> Result<f64> {
    let started = Instant::now();
    let mut times = Vec::new();
    for (index, address) in (0..).zip(addresses.iter().cycle()) {
        if let Some(rate) = rate {
            let due = Duration::from_secs(1) * index / rate;
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
        if started.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        let sent = Instant::now();
        query.ask(address, model)?;
        times.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Spread::new(times).median)
}

fn watch_memory(args: &Args, cluster: &mut Cluster, config: &str) -> Result<()> {
    let rate = 2000;
    let address = cluster.frontend(&Place::Anywhere, "watched", config)?;
    let pid = cluster.processes.pid("watched")?;
    println!("resident memory of the frontend (coded) at {rate} requests/s:");
    println!("  at the start {:6.1} MB", memory(pid)?.now);
    let parts = 6;
    for part in 1..=parts {
        let seconds = (args.memory_seconds / parts).max(1);
        let more = ["--arrivals", "constant"];
        let report = models::load(&address, (f64::from(rate), seconds), &more)?;
        println!(
            "  after {:3} s   {:6.1} MB   ({} answered, {} failed)",
            part * seconds,
            memory(pid)?.now,
            report["counts"]["answered"],
            report["counts"]["failed"]
        );
    }
    Ok(())
}
