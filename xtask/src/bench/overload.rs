//! `cargo xtask bench overload`: three times the capacity, for a minute.
//!
//! Emulated instances take a constant time for each query and no processor, so that the capacity is
//! known: instances over service time. Requests come by Poisson's law at a normal rate, then at
//! three times the capacity, then at the normal rate again. What is wanted: goodput stays at 90 %
//! of the capacity and more, accepted requests are answered within twice the normal p99, the others
//! hear so within 5 ms, the frontend's memory is bounded, and afterwards all is as before. Writes
//! its part of `frontend/RESULTS.md`. Needs the models of `cargo xtask demo`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{Load, prepare};
use super::section;
use super::servers::{Server, Servers};
use crate::resources::{mb, memory};
use crate::workspace;

/// Arguments of `cargo xtask bench overload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Instances of the deployed model; half as many of the parity model
    #[arg(long, default_value_t = 8)]
    instances: usize,
    /// Milliseconds that an instance takes for a query
    #[arg(long, default_value_t = 18.0)]
    service_ms: f64,
    /// Share of the capacity that is normal
    #[arg(long, default_value_t = 0.7)]
    normal: f64,
    /// Times the capacity that is too much
    #[arg(long, default_value_t = 3.0)]
    overload: f64,
    /// Seconds of overload
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Seconds of normal load, before and after
    #[arg(long, default_value_t = 20)]
    normal_seconds: u32,
    /// Use the release binaries as they are
    #[arg(long)]
    no_build: bool,
}

/// One part of the run.
#[derive(Debug)]
struct Part {
    title: String,
    offered: f64,
    answered: f64,
    p50: f64,
    p99: f64,
    refused: u64,
    refused_p99: Option<f64>,
    /// Requests that failed in another way than by 503.
    others: u64,
    memory_mb: f64,
    valid: bool,
}

fn folder() -> PathBuf {
    workspace::root().join(".parapet/bench-overload")
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    prepare(!args.no_build)?;
    let mut servers = Servers::new(&folder())?;
    let frontend = start(&mut servers, args)?;
    let capacity = args.instances as f64 * 1e3 / args.service_ms;
    // Connections are opened and the service time is learned.
    part(&frontend, "warm-up", args.normal * capacity, 5)?;
    let normal = args.normal * capacity;
    let plan = [
        (
            format!("{} of the capacity", args.normal),
            normal,
            args.normal_seconds,
        ),
        (
            format!("{} times the capacity", args.overload),
            args.overload * capacity,
            args.seconds,
        ),
        (
            format!("{} again", args.normal),
            normal,
            args.normal_seconds,
        ),
    ];
    let run = |(title, rate, seconds): (String, f64, u32)| part(&frontend, &title, rate, seconds);
    let [before, overload, after] = plan;
    let parts = [run(before)?, run(overload)?, run(after)?];
    let (text, aims) = report(args, capacity, &parts);
    section::publish_frontend("cargo xtask bench overload", text, &aims)
}

/// Emulated instances, and a frontend in front of them that codes with k = 2.
fn start(servers: &mut Servers, args: &Args) -> Result<Server> {
    let profile = folder().join("faults.toml");
    let text = format!(
        "seed = 1\nservice_time = {{ distribution = \"constant\", ms = {:?} }}\n",
        args.service_ms
    );
    workspace::write(&profile, text)?;
    let profile = profile.display().to_string();
    let mut instances = |model: &str, count: usize| {
        let addresses = (0..count).map(|index| {
            let arguments = ["--max-batch-size", "1", "--fault-profile", &profile];
            let instance = servers.instance(&format!("{model}-{index}"), model, &arguments)?;
            Ok(format!("{:?}", instance.authority))
        });
        Ok::<_, anyhow::Error>(addresses.collect::<Result<Vec<_>>>()?.join(", "))
    };
    let deployed = instances("fashion", args.instances)?;
    let parity = instances("fashion-parity", args.instances.div_ceil(2))?;
    let config = format!(
        "[[models]]\nname = \"fashion\"\ninstances = [{deployed}]\nslots_per_instance = 2\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"concat\"\nk = 2\n\
         [[models.strategy.parity]]\nmodel = \"fashion-parity\"\ninstances = [{parity}]\n"
    );
    servers.frontend("frontend", &config, None)
}

fn part(frontend: &Server, title: &str, rate: f64, seconds: u32) -> Result<Part> {
    println!("{title}: {rate:.0} requests/s for {seconds} s");
    let url = format!("http://{}", frontend.authority);
    let load = Load {
        url: &url,
        model: "fashion",
        rate,
        seconds,
        more: &[],
    };
    let report = load.run(None, &folder().join("run.json"))?;
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64);
    let failed = number("/counts/failed").context("no counts")?
        + number("/counts/unanswered").unwrap_or(0.0);
    let refused = report["errors"]
        .as_object()
        .and_then(|errors| errors.get("http-503"))
        .and_then(Value::as_u64)
        .unwrap_or(0);
    Ok(Part {
        title: title.to_owned(),
        offered: rate,
        answered: number("/answered_per_s").context("no answered_per_s")?,
        p50: number("/latency/answered/p50").unwrap_or(f64::NAN),
        p99: number("/latency/answered/p99").unwrap_or(f64::NAN),
        refused,
        refused_p99: number("/time_to_failure/p99"),
        others: (failed as u64).saturating_sub(refused),
        memory_mb: mb(memory(frontend.pid)?.highest),
        valid: report["valid"].as_bool().unwrap_or(false),
    })
}

/// The section's text, and the aims.
fn report(args: &Args, capacity: f64, parts: &[Part; 3]) -> (String, [(bool, String); 5]) {
    let mut text = format!(
        "`cargo xtask bench overload`: {} instances with an emulated service time of {} ms, so \
            that {capacity:.0} requests/s is all that\n\
         they can do; coded, k = 2, with {} parity instances; one thread of the frontend; the \
         generator on the same 2 cores.\n\n\
         | load | offered, requests/s | answered | p50, ms | p99, ms | refused (503) | p99 of \
         refusing, ms | other failures | most memory, MB |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        args.instances,
        args.service_ms,
        args.instances.div_ceil(2),
    );
    for part in parts {
        let refused_p99 = part
            .refused_p99
            .map_or("-".to_owned(), |p99| format!("{p99:.2}"));
        let late = if part.valid {
            ""
        } else {
            " (the generator was late)"
        };
        let _ = writeln!(
            text,
            "| {}{late} | {:.0} | {:.0} | {:.1} | {:.1} | {} | {refused_p99} | {} | {:.1} |",
            part.title,
            part.offered,
            part.answered,
            part.p50,
            part.p99,
            part.refused,
            part.others,
            part.memory_mb
        );
    }
    let [normal, overload, after] = parts;
    text.push_str("\nUnder overload: ");
    (text, aims(capacity, normal, overload, after))
}

/// Each aim: true if it was met, and the figure with the bound.
fn aims(capacity: f64, normal: &Part, overload: &Part, after: &Part) -> [(bool, String); 5] {
    let goodput = 100.0 * overload.answered / capacity;
    let slower = overload.p99 / normal.p99;
    let refusing = overload.refused_p99.unwrap_or(0.0);
    let grown = overload.memory_mb - normal.memory_mb;
    let refused = after.refused;
    [
        (
            goodput >= 90.0,
            format!("goodput {goodput:.1} % of the capacity (wanted: 90)"),
        ),
        (
            slower <= 2.0,
            format!(
                "p99 of accepted requests {slower:.2} times the normal one (wanted: 2 at most)"
            ),
        ),
        (
            refusing <= 5.0,
            format!("p99 of refusing {refusing:.2} ms (wanted: 5 at most)"),
        ),
        (
            grown <= 16.0,
            format!("memory grew by {grown:.1} MB (wanted: 16 at most)"),
        ),
        (
            refused == 0,
            format!("{refused} refused when the overload was over (wanted: none)"),
        ),
    ]
}
