//! `cargo xtask bench proxy`: the frontend as a proxy, beside nginx in front of the same instances.
//!
//! Each proxy has one core to itself; the clients and the instances have another one. The instances
//! are emulated, so that it is the proxy that is measured: by [`wrk`](https://github.com/wg/wrk) in
//! a closed loop, and by the load generator at the same rate for all, where redundancy is not shed;
//! and over gRPC by [`h2load`](https://nghttp2.org/documentation/h2load-howto.html). Targets take
//! turns. Needs nginx, wrk, h2load and the models of `cargo xtask demo`.

use super::peers::{h2load, start_emulated, start_nginx, wrk};
use super::processor::{processor_seconds, stay_on};
use super::report::Aim::{AtLeast, AtMost};
use super::report::{self, FRONTEND, in_turns, ratio, spread};
use super::{configuration, prepare};
use crate::cluster::Cluster;
use crate::models::figure;
use crate::prelude::*;

/// The clients' and the instances' core.
const OTHERS: usize = 0;
const PROXY: Place = Place::Core(1);
const CONNECTIONS: u32 = 32;
const RATE: u32 = 2000;
const SECONDS: u32 = 4;
const INSTANCES: usize = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds to each target
    #[arg(long, default_value_t = 5)]
    rounds: u64,
}

/// Requests/s and p99 with 32 connections, p99 and processor time of a request at an even rate; with
/// 32 connections over gRPC calls/s, p99 and processor time.
type Figures = [f64; 7];

const NGINX: &str = "nginx";
const NONE: &str = "frontend, no redundancy";
const CODED: &str = "frontend, coded, k = 2";

pub(super) fn run(args: &Args) -> Result<()> {
    require(&[("nginx", "nginx"), ("wrk", "wrk"), ("h2load", "nghttp2-client")])?;
    prepare()?;
    stay_on(OTHERS)?;
    let folder = scratch("bench-proxy");
    let mut cluster = Cluster::for_bench(&folder)?;
    let mut emulated =
        |model: &str, count| start_emulated(&mut cluster.processes, model, count, Duration::ZERO);
    let deployed = emulated("fashion", INSTANCES)?;
    let parity = emulated("fashion-parity", INSTANCES / 2)?;
    let nginx = start_nginx(&mut cluster.processes, &folder, &deployed, &PROXY)?;
    let mut targets = vec![(NGINX, nginx)];
    for (title, parity) in [(NONE, &[][..]), (CODED, &parity)] {
        let (config, grpc) = (configuration(&deployed, parity, 16), free_address()?);
        let listen = format!("[server]\ngrpc_listen = \"{grpc}\"\n");
        let config = config.replacen("[server]\n", &listen, 1);
        targets.push((title, [cluster.frontend(&PROXY, title, &config)?, grpc]));
    }
    let mut figures = in_turns(args.rounds + 1, targets.len(), |_, target| {
        let (title, [address, grpc]) = &targets[target];
        let pid = cluster.processes.pid(title)?;
        let (per_second, p99_ms) = wrk(address, CONNECTIONS, SECONDS)?;
        let [even_p99, processor_us] = at_an_even_rate(address, pid).context(*title)?;
        println!(
            "{title}: {per_second:.0} requests/s, p99 {p99_ms:.2} ms; p99 {even_p99:.2} ms, \
             {processor_us:.0} us of processor time for each"
        );
        let before = processor_seconds(pid)?;
        let (calls, grpc_p99) = h2load(grpc, CONNECTIONS, SECONDS).context(*title)?;
        let call_us = (processor_seconds(pid)? - before) / (calls * f64::from(SECONDS)) * 1e6;
        println!(
            "{title}: {calls:.0} gRPC calls/s, p99 {grpc_p99:.2} ms, {call_us:.0} us for each"
        );
        Ok([per_second, p99_ms, even_p99, processor_us, calls, grpc_p99, call_us])
    })?;
    // The first round warms up.
    for rounds in &mut figures {
        rounds.remove(0);
    }
    publish(args, &figures)
}

/// The load generator's p99 in ms, and the processor time in us that the proxy took for a request.
fn at_an_even_rate(address: &str, pid: u32) -> Result<[f64; 2]> {
    let before = processor_seconds(pid)?;
    let (pace, more) = ((RATE.into(), SECONDS), ["--arrivals", "constant"]);
    let report = models::load(address, pace, &more)?;
    let seconds = processor_seconds(pid)? - before;
    ensure!(figure(&report, "/counts/failed")? == 0.0, "requests failed: {}", report["errors"]);
    let answered = figure(&report, "/counts/answered")?;
    Ok([figure(&report, "/latency/answered/p99")?, seconds / answered * 1e6])
}

fn publish(args: &Args, figures: &[Vec<Figures>]) -> Result<()> {
    let rounds = args.rounds;
    let mut text = format!(
        "`cargo xtask bench proxy`: binary tensors of 3 KB; the proxy on one core, clients and 4 \
         emulated instances (which answer at\nonce; 2 more for parity queries) on the other; \
         medians of {rounds} rounds in turns.\n\n\
         | | requests/s, {CONNECTIONS} connections | p99 then, ms | p99 at {RATE}/s, ms | \
         processor time of a request at {RATE}/s, us | gRPC calls/s, {CONNECTIONS} connections | p99 \
         then, ms | processor time of a call, us |\n|---|---|---|---|---|---|---|---|\n"
    );
    for (title, rounds) in [NGINX, NONE, CODED].into_iter().zip(figures) {
        let medians = [0, 1, 2, 3, 4, 5, 6].map(|figure| spread(rounds, figure).median);
        let [per_second, full_p99, even_p99, processor, calls, grpc_p99, call] = medians;
        text += &format!(
            "| {title} | {per_second:.0} | {full_p99:.2} | {even_p99:.2} | {processor:.0} | \
             {calls:.0} | {grpc_p99:.2} | {call:.0} |\n"
        );
    }
    text += "\nMedians of the rounds' ratios, without redundancy: ";
    let [speed, full_p99, even_p99, calls, grpc_p99] =
        [0, 1, 2, 4, 5].map(|figure| ratio(&figures[1], &figures[0], figure).median);
    let [processor, call] = [3, 6].map(|figure| ratio(&figures[2], &figures[1], figure).median);
    let aims = [
        AtLeast(0.9, speed, "requests/s, times nginx's"),
        AtMost(1.2, full_p99, "p99, times nginx's, with 32 connections"),
        AtMost(1.2, even_p99, "and at 2000/s"),
        AtMost(1.15, processor, "coding's processor time, times that without"),
        AtLeast(0.9, calls, "gRPC calls/s, times nginx's"),
        AtMost(1.2, grpc_p99, "p99, times nginx's, with 32 gRPC connections"),
        AtMost(1.15, call, "coding's processor time of a gRPC call, times that without"),
    ];
    report::publish(FRONTEND, "cargo xtask bench proxy", &text, &aims)
}
