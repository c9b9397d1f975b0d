//! `cargo xtask bench proxy`: the frontend as a proxy, beside nginx in front of the same instances.
//!
//! Each proxy has one core to itself; the clients and the instances have another one. The instances
//! are emulated, so that it is the proxy that is measured: by [`wrk`](https://github.com/wg/wrk) in
//! a closed loop, and by the load generator at the same rate for all, where redundancy is not shed.
//! Targets take turns. Needs nginx, wrk and the models of `cargo xtask demo`.

use super::peers::{self, Query, wrk};
use super::report::{Spread, at_least, at_most, publish_frontend};
use super::{configuration, prepare};
use crate::cluster::{ANY_PORT, Cluster};
use crate::models::figure;
use crate::prelude::*;
use crate::resources::{processor_seconds, stay_on};

/// The clients' and the instances' core.
const OTHERS: usize = 0;
const PROXY: usize = 1;
const CONNECTIONS: u32 = 32;
const RATE: u32 = 2000;
const SECONDS: u32 = 4;
const INSTANCES: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds to each target
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Use the release binaries as they are
    #[arg(long)]
    no_build: bool,
}

/// A proxy, and what was measured of it: requests/s and p99 with 32 connections, p99 and processor
/// time of a request at an even rate.
struct Target {
    title: &'static str,
    address: String,
    pid: u32,
    figures: [Vec<f64>; 4],
}

impl Target {
    fn new(title: &'static str, address: String, pid: u32) -> Self {
        let figures = Default::default();
        Self {
            title,
            address,
            pid,
            figures,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    require(&[("nginx", "nginx"), ("wrk", "wrk")])?;
    prepare(!args.no_build)?;
    stay_on(OTHERS)?;
    let folder = scratch("bench-proxy");
    let mut cluster = Cluster::for_bench(&folder)?;
    let instance = cluster.instance("instance", "fashion", ANY_PORT, &[])?;
    let answer = Query::new()?.response(&instance, "fashion")?;
    let metadata = http::get(&format!("http://{instance}/v2/models/fashion"))?;
    cluster.processes.end("instance")?;
    let emulated = |count: usize| -> Result<Vec<String>> {
        let start = |_| peers::start_emulated(&answer, &metadata, Duration::ZERO);
        (0..count).map(start).collect()
    };
    let (deployed, parity) = (emulated(INSTANCES)?, emulated(INSTANCES / 2)?);
    let nginx = peers::start_nginx(&mut cluster.processes, &folder, &deployed, Some(PROXY))?;
    let none = cluster.frontend("none", &configuration(&deployed, &[], 16), Some(PROXY))?;
    let coded = cluster.frontend("coded", &configuration(&deployed, &parity, 16), Some(PROXY))?;
    let mut targets = [
        Target::new("nginx", nginx, cluster.processes.pid("nginx")?),
        Target::new(
            "frontend, no redundancy",
            none,
            cluster.processes.pid("none")?,
        ),
        Target::new(
            "frontend, coded, k = 2",
            coded,
            cluster.processes.pid("coded")?,
        ),
    ];
    for round in 0..=args.rounds {
        for target in &mut targets {
            let asked = (target.address.as_str(), "fashion");
            let (per_second, p99_ms) = wrk(asked, (CONNECTIONS, SECONDS), None)?;
            let [even_p99, processor_us] = at_an_even_rate(target)?;
            println!(
                "{}: {per_second:.0} requests/s, p99 {p99_ms:.2} ms; p99 {even_p99:.2} ms, \
                 {processor_us:.0} us of processor time for each",
                target.title
            );
            // The first one warms up.
            if round > 0 {
                let found = [per_second, p99_ms, even_p99, processor_us];
                let pairs = target.figures.iter_mut().zip(found);
                pairs.for_each(|(all, one)| all.push(one));
            }
        }
    }
    publish(args, &targets)
}

/// The load generator's p99 in ms, and the processor time in us that the proxy took for a request.
fn at_an_even_rate(target: &Target) -> Result<[f64; 2]> {
    let before = processor_seconds(target.pid)?;
    let pace = (RATE.into(), SECONDS);
    let more = ["--arrivals", "constant"];
    let report = models::load((&target.address, "fashion"), pace, &more, None)?;
    let seconds = processor_seconds(target.pid)? - before;
    ensure!(
        figure(&report, "/counts/failed")? == 0.0,
        "{}: requests failed: {}",
        target.title,
        report["errors"]
    );
    let answered = figure(&report, "/counts/answered")?;
    Ok([
        figure(&report, "/latency/answered/p99")?,
        seconds / answered * 1e6,
    ])
}

fn publish(args: &Args, targets: &[Target; 3]) -> Result<()> {
    let rounds = args.rounds;
    let mut text = format!(
        "`cargo xtask bench proxy`: binary tensors of 3 KB; the proxy on one core, clients and 4 \
         emulated instances (which answer at\nonce what a real one has answered; 2 more for parity \
         queries) on the other; medians of {rounds} rounds in turns.\n\n\
         | | requests/s, {CONNECTIONS} connections | p99 then, ms | p99 at {RATE}/s, ms | \
         processor time of a request at {RATE}/s, us |\n|---|---|---|---|---|\n"
    );
    for Target { title, figures, .. } in targets {
        let median = |values: &Vec<f64>| Spread::new(values.iter().copied()).median;
        let [per_second, full_p99, even_p99, processor] = figures.each_ref().map(median);
        text += &format!(
            "| {title} | {per_second:.0} | {full_p99:.2} | {even_p99:.2} | {processor:.0} |\n"
        );
    }
    text += "\nMedians of the rounds' ratios, without redundancy: ";
    // Of a figure, in the same round.
    let ratio = |figure: usize, of: &Target, base: &Target| {
        let pairs = of.figures[figure].iter().zip(&base.figures[figure]);
        Spread::new(pairs.map(|(value, base)| value / base)).median
    };
    let [nginx, none, coded] = targets;
    let [speed, full_p99, even_p99] = [0, 1, 2].map(|figure| ratio(figure, none, nginx));
    let processor = ratio(3, coded, none);
    let aims = [
        at_least(0.5, speed, "requests/s, times nginx's"),
        at_most(2.0, full_p99, "p99, times nginx's, with 32 connections"),
        at_most(2.0, even_p99, "and at 2000/s"),
        at_most(
            1.3,
            processor,
            "coding's processor time, times that without",
        ),
    ];
    publish_frontend("cargo xtask bench proxy", &text, &aims)
}
