//! `cargo xtask bench serving`: what the frontend adds to a request's latency, and the memory that
//! it takes.
//!
//! Latency is measured in two ways. In a closed loop one client waits for each answer before it
//! sends again, so that cores hardly sleep: what the code costs. At a fixed rate a mostly idle
//! machine wakes sleeping cores for each request: what a lightly loaded deployment sees.
//!
//! The instances are called in turns, as the frontend does: an instance that has just computed the
//! last request is some 40 us faster than one that has slept for three, and the frontend is not to
//! blame for that.
//!
//! With coding, a parity model computes while requests are served. Here it does so on the cores of
//! the instances, of the frontend and of the client, which slows every one of them down; where it
//! has a machine of its own it does not. So coding is measured both ways: with the demo's parity
//! instances, and with emulated ones that take no processor.
//!
//! Where nginx is installed it stands beside, in front of the same instances: a proxy that only
//! passes bytes on shows what of an added latency is the two more hops. Targets take turns, so that
//! a machine whose speed drifts drifts for all. Needs the models of `cargo xtask demo`.

use std::time::Duration;

use anyhow::Result;

use super::client::{Client, Pace, p50_us, time_requests};
use super::load::{Load, prepare};
use super::nginx::Nginx;
use super::remote::RemoteInstance;
use super::spread::Spread;
use crate::demo::{self, DemoCluster, Mode, Ports};
use crate::resources::{mb, memory, stay_on};

/// For how long the frontends that poll do so after a request: longer than an answer takes.
const BUSY_POLL_US: u32 = 1000;

/// Arguments of `cargo xtask bench serving`.
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
    /// Keep the frontends on this core, and all else on the first of the others
    #[arg(long)]
    frontend_core: Option<usize>,
    /// Added to every port of the demo
    #[arg(long, default_value_t = 0)]
    port_offset: u16,
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    prepare(true)?;
    if let Some(core) = args.frontend_core {
        stay_on(usize::from(core == 0))?;
    }
    latency(args)?;
    if args.memory_seconds > 0 {
        watch_memory(args)?;
    }
    Ok(())
}

fn latency(args: &Args) -> Result<()> {
    let mut cluster = DemoCluster::start_optimised(
        Mode::Coded,
        Ports::new(args.port_offset),
        args.frontend_core,
    )?;
    let plain = cluster.add_frontend(Mode::Plain, 1, |text| text)?;
    let body = demo::binary_query()?;
    let connect = |url: &str, model: &str| {
        let authority = url.trim_start_matches("http://");
        let path = format!("/v2/models/{model}/infer");
        Client::connect(authority, &path, &body.bytes, body.header_length)
    };
    let urls = cluster.instance_urls();
    let remote = remote_parity(&mut cluster, |url| connect(url, "fashion-parity"))?;
    let awake = |text: String| {
        text.replace(
            "[server]\n",
            &format!("[server]\nbusy_poll_us = {BUSY_POLL_US}\n"),
        )
    };
    let plain_awake = cluster.add_frontend(Mode::Plain, 3, awake)?;
    let coded_awake = cluster.add_frontend(Mode::Coded, 4, awake)?;
    let nginx = Nginx::start(
        &crate::workspace::demo().join("nginx"),
        &urls,
        args.frontend_core,
    )?;
    let mut targets = vec![
        (
            "instances",
            urls.iter()
                .map(|url| connect(url, "fashion"))
                .collect::<Result<Vec<_>>>()?,
        ),
        ("none", vec![connect(&plain, "fashion")?]),
        ("coded", vec![connect(&cluster.url(), "fashion")?]),
        (
            "coded, parity elsewhere",
            vec![connect(&remote, "fashion")?],
        ),
        (
            "none, busy polling",
            vec![connect(&plain_awake, "fashion")?],
        ),
        (
            "coded, busy polling",
            vec![connect(&coded_awake, "fashion")?],
        ),
    ];
    if let Some(nginx) = &nginx {
        targets.push(("nginx", vec![connect(nginx.authority(), "fashion")?]));
    }
    let span = Duration::from_secs(u64::from(args.seconds));
    for pace in [Pace::Closed, Pace::PerSecond(args.rate)] {
        println!("p50 of a request in microseconds, binary tensors, {pace}:");
        let mut added: Vec<Vec<f64>> = vec![Vec::new(); targets.len()];
        for _ in 0..args.rounds {
            let mut direct = None;
            for ((name, clients), added) in targets.iter_mut().zip(&mut added) {
                let p50 = p50_us(time_requests(clients, pace, span)?);
                print!("  {name} {p50:.0}");
                added.push(p50 - *direct.get_or_insert(p50));
            }
            println!();
        }
        println!("  median of what each adds to the instances:");
        for ((name, _), added) in targets.iter().zip(added).skip(1) {
            println!("    {name:24} {:4.0}", Spread::new(added).median);
        }
    }
    Ok(())
}

/// Adds a frontend whose parity instances are emulated; its URL.
fn remote_parity(
    cluster: &mut DemoCluster,
    connect: impl Fn(&str) -> Result<Client>,
) -> Result<String> {
    let mut parity = [connect(&cluster.parity_url())?];
    let service_time = time_requests(&mut parity, Pace::Closed, Duration::from_secs(1))?;
    let service_time = Duration::from_secs_f64(p50_us(service_time) * 1e-6);
    let [parity] = &mut parity;
    let response = parity.ask()?;
    let addresses: Vec<(String, String)> = cluster
        .parity_addresses()
        .into_iter()
        .map(|address| {
            Ok((
                address,
                RemoteInstance::start(response, "{}", service_time)?
                    .address()
                    .to_owned(),
            ))
        })
        .collect::<Result<_>>()?;
    cluster.add_frontend(Mode::Coded, 2, |text| {
        addresses
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
    })
}

fn watch_memory(args: &Args) -> Result<()> {
    let cluster = DemoCluster::start_optimised(Mode::Coded, Ports::new(args.port_offset), None)?;
    let (pid, url) = (cluster.frontend_pid(), cluster.url());
    println!(
        "resident memory of the frontend (coded) at {} requests/s:",
        args.memory_rate
    );
    println!("  at the start {:6.1} MB", mb(memory(pid)?.now));
    let parts = 6;
    for part in 1..=parts {
        let seconds = (args.memory_seconds / parts).max(1);
        let load = Load {
            url: &url,
            model: "fashion",
            rate: args.memory_rate.into(),
            seconds,
            more: &["--arrivals", "constant"],
        };
        let report = load.run(None, &crate::workspace::demo().join("bench.json"))?;
        let counts = &report["counts"];
        println!(
            "  after {:3} s   {:6.1} MB   ({} answered, {} failed)",
            part * seconds,
            mb(memory(pid)?.now),
            counts["answered"],
            counts["failed"]
        );
    }
    Ok(())
}
