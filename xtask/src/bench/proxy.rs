//! `cargo xtask bench proxy`: the frontend as a proxy, beside nginx in front of the same instances.
//!
//! Each proxy has one core to itself; the clients and the instances have another one. The instances
//! are emulated: they answer at once what a real one has answered, so that it is the proxy that is
//! measured. Two ways of asking:
//!
//! - as many requests as a proxy can take ([`wrk`](https://github.com/wg/wrk), 32 connections in a
//!   closed loop): requests/s;
//! - the same rate for all (the load generator, open loop): p99, and processor time for each
//!   request, where redundancy is not shed, as it is first under full load.
//!
//! Targets take turns. Writes its part of `frontend/RESULTS.md`. Needs nginx, wrk and the models of
//! `cargo xtask demo`.

mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::report::{Even, Target};
use super::client::Client;
use super::load::{Load, prepare};
use super::nginx::Nginx;
use super::remote::RemoteInstance;
use super::section;
use super::servers::Servers;
use super::wrk::Wrk;
use crate::demo::binary_query;
use crate::resources::{processor_seconds, stay_on};
use crate::{http, workspace};

/// The clients' and the instances' core.
const OTHERS: usize = 0;
const PROXY: usize = 1;
/// Instances of the deployed model; half as many of the parity model.
const INSTANCES: usize = 4;

/// Arguments of `cargo xtask bench proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rounds to each target
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each part of a round
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Connections of the closed loop
    #[arg(long, default_value_t = 32)]
    connections: u32,
    /// Requests per second of the open loop
    #[arg(long, default_value_t = 2000)]
    rate: u32,
    /// Use the release binaries as they are
    #[arg(long)]
    no_build: bool,
}

fn folder() -> PathBuf {
    workspace::root().join(".parapet/bench-proxy")
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    prepare(!args.no_build)?;
    workspace::make_folder(&folder())?;
    stay_on(OTHERS)?;
    let answers = real_answers()?;
    let (deployed, parity) = (
        emulated(&answers, INSTANCES)?,
        emulated(&answers, INSTANCES / 2)?,
    );
    let nginx = Nginx::start(&folder().join("nginx"), &deployed, Some(PROXY))?
        .context("nginx is not installed; it is what the frontend is compared with")?;
    let mut servers = Servers::new(&folder())?;
    let none = servers.frontend("none", &config(&deployed, None), Some(PROXY))?;
    let coded = servers.frontend("coded", &config(&deployed, Some(&parity)), Some(PROXY))?;
    let wrk = Wrk::find(&folder(), "fashion", args.connections, args.seconds)?
        .context("wrk is not installed")?;
    let mut targets = [
        Target::new("nginx", nginx.server()),
        Target::new("frontend, no redundancy", none),
        Target::new("frontend, coded, k = 2", coded),
    ];
    for round in 0..=args.rounds {
        for target in &mut targets {
            let full = wrk.run(&target.server().authority, None)?;
            let even = at_an_even_rate(target, args)?;
            println!("{}: {full}; {even}", target.name());
            // The first one warms up.
            if round > 0 {
                target.add(full, even);
            }
        }
    }
    let (text, aims) = report::write(args.rounds, args.connections, args.rate, &targets);
    section::publish_frontend("cargo xtask bench proxy", text, &aims)
}

/// Returns a real instance's answer to the first image, a whole HTTP response, and its metadata.
fn real_answers() -> Result<(Vec<u8>, String)> {
    let mut servers = Servers::new(&folder())?;
    let instance = servers.instance("instance", "fashion", &[])?;
    let query = binary_query()?;
    let path = "/v2/models/fashion/infer";
    let mut client = Client::connect(&instance.authority, path, &query.bytes, query.header_length)?;
    let answer = client
        .ask()
        .context("the instance does not answer")?
        .to_vec();
    Ok((
        answer,
        http::get(&format!("http://{}/v2/models/fashion", instance.authority))?,
    ))
}

fn emulated((answer, metadata): &(Vec<u8>, String), count: usize) -> Result<Vec<String>> {
    let start = || RemoteInstance::start(answer, metadata, Duration::ZERO);
    (0..count)
        .map(|_| Ok(start()?.address().to_owned()))
        .collect()
}

fn config(deployed: &[String], parity: Option<&[String]>) -> String {
    let mut text = format!(
        "[[models]]\nname = \"fashion\"\ninstances = {deployed:?}\nslots_per_instance = 16\n"
    );
    if let Some(parity) = parity {
        text.push_str(&format!(
            "[models.strategy]\nkind = \"coded\"\nencoder = \"concat\"\nk = 2\n\
             [[models.strategy.parity]]\nmodel = \"fashion-parity\"\ninstances = {parity:?}\n\
             slots_per_instance = 16\n"
        ));
    }
    text
}

/// The load generator's p99, and the processor time that the proxy took meanwhile.
fn at_an_even_rate(target: &Target, args: &Args) -> Result<Even> {
    let before = processor_seconds(target.server().pid)?;
    let url = format!("http://{}", target.server().authority);
    let arrivals = ["--arrivals", "constant"];
    let load = Load {
        url: &url,
        model: "fashion",
        rate: args.rate.into(),
        seconds: args.seconds,
        more: &arrivals,
    };
    let report = load.run(None, &folder().join("run.json"))?;
    let seconds = processor_seconds(target.server().pid)? - before;
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64);
    let answered = number("/counts/answered").context("no counts in run.json")?;
    ensure!(
        number("/counts/failed") == Some(0.0),
        "{}: requests failed: {}",
        target.name(),
        report["errors"]
    );
    Ok(Even {
        p99_ms: number("/latency/answered/p99").context("no p99 in run.json")?,
        processor_us: seconds / answered * 1e6,
    })
}
