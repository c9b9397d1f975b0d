//! `cargo xtask bench overload`: three times the capacity, for a minute.
//!
//! Emulated instances take a constant time for each query and no processor, so that the capacity is
//! known: instances over service time. Requests come by Poisson's law at a normal rate, then at
//! three times the capacity, then at the normal rate again. Needs the models of the demo.

use super::report::Aim::{self, AtLeast, AtMost};
use super::report::{FRONTEND, publish};
use super::{configuration, prepare};
use crate::cluster::Cluster;
use crate::models::figure;
use crate::prelude::*;
use crate::process::memory;

const INSTANCES: usize = 8;
const SERVICE_MS: f64 = 18.0;
/// Shares of the capacity.
const NORMAL: f64 = 0.7;
const OVERLOAD: f64 = 3.0;

#[derive(Debug)]
struct Part {
    row: String,
    answered: f64,
    p99: f64,
    refused: f64,
    refused_p99: Option<f64>,
    memory: f64,
}

pub(super) fn run() -> Result<()> {
    prepare()?;
    let (capacity, parity) = (INSTANCES as f64 * 1e3 / SERVICE_MS, INSTANCES.div_ceil(2));
    let mut cluster = Cluster::for_bench(&scratch("bench-overload"))?;
    let profile = scratch("bench-overload/faults.toml").display().to_string();
    let service = format!("{{ distribution = \"constant\", ms = {SERVICE_MS:?} }}");
    shell()?.write_file(&profile, format!("seed = 1\nservice_time = {service}\n"))?;
    let more = ["--max-batch-size", "1", "--fault-profile", &profile];
    let deployed = cluster.instances("fashion", INSTANCES, &more)?;
    let config = configuration(&deployed, &cluster.instances("fashion-parity", parity, &more)?, 2);
    let address = cluster.frontend(&Place::Anywhere, "frontend", &config)?;
    let pid = cluster.processes.pid("frontend")?;
    let part = |title: String, rate: f64, seconds| part(&address, pid, title, rate, seconds);

    // Connections are opened and the service time is learned.
    part("warm-up".to_owned(), NORMAL * capacity, 5)?;
    let (normal, overload) = (NORMAL * capacity, OVERLOAD * capacity);
    let parts = [
        part(format!("{NORMAL} of the capacity"), normal, 20)?,
        part(format!("{OVERLOAD} times the capacity"), overload, 60)?,
        part(format!("{NORMAL} again"), normal, 20)?,
    ];
    let rows = parts.each_ref().map(|part| part.row.as_str()).concat();
    let text = format!(
        "`cargo xtask bench overload`: {INSTANCES} instances with an emulated service time of \
         {SERVICE_MS} ms, so that {capacity:.0} requests/s is all that\nthey can do; coded, k = 2, \
         with {parity} parity instances; one thread of the frontend; the generator on the same 2 \
         cores.\n\n\
         | load | offered, requests/s | answered | p50, ms | p99, ms | refused (503) | p99 of \
         refusing, ms | other failures | most memory, MB |\n\
         |---|---|---|---|---|---|---|---|---|\n{rows}\nUnder overload: "
    );
    publish(FRONTEND, "cargo xtask bench overload", &text, &aims(capacity, &parts))
}

fn part(address: &str, pid: u32, title: String, rate: f64, seconds: u32) -> Result<Part> {
    println!("{title}: {rate:.0} requests/s for {seconds} s");
    let report = models::load(address, (rate, seconds), &[])?;
    let answered = figure(&report, "/answered_per_s")?;
    let [p50, p99] = ["/latency/answered/p50", "/latency/answered/p99"]
        .map(|pointer| figure(&report, pointer).unwrap_or(f64::NAN));
    let refused = figure(&report, "/errors/http-503").unwrap_or(0.0);
    let unanswered = figure(&report, "/counts/unanswered").unwrap_or(0.0);
    let others = figure(&report, "/counts/failed")? + unanswered - refused;
    let refused_p99 = figure(&report, "/time_to_failure/p99").ok();
    let refusing = refused_p99.map_or("-".to_owned(), |p99| format!("{p99:.2}"));
    let memory = memory(pid)?.highest;
    let is_late = report["valid"] != true;
    let late = if is_late { " (late)" } else { "" };
    let row = format!(
        "| {title}{late} | {rate:.0} | {answered:.0} | {p50:.1} | {p99:.1} | {refused} | \
         {refusing} | {others} | {memory:.1} |\n"
    );
    Ok(Part { row, answered, p99, refused, refused_p99, memory })
}

fn aims(capacity: f64, [normal, overload, after]: &[Part; 3]) -> [Aim<'static>; 5] {
    let goodput = 100.0 * overload.answered / capacity;
    let refusing = overload.refused_p99.unwrap_or(0.0);
    [
        AtLeast(90.0, goodput, "goodput, % of the capacity"),
        AtMost(2.0, overload.p99 / normal.p99, "p99 of accepted requests, times the normal one"),
        AtMost(5.0, refusing, "p99 of refusing, ms"),
        AtMost(16.0, overload.memory - normal.memory, "growth of memory, MB"),
        AtMost(0.0, after.refused, "refused when the overload was over"),
    ]
}
