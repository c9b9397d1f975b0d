//! `cargo xtask bench fidelity`: the simulator against a real run of the variant `p2` of
//! `loadgen/experiments/tail.toml` (with 1 % stragglers the p99 lies on an edge, and two real runs
//! differ by half). The delays that the simulator cannot know are taken from the lower half of the
//! latencies without redundancy, where neither stragglers nor queues show.

use super::tail;
use crate::models::figure;
use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare with the last `cargo xtask bench tail --only p2` instead of running the strategies
    /// anew
    #[arg(long)]
    reuse: bool,
}

const STRATEGIES: [&str; 4] = ["none", "equal_resources", "hedge", "coded"];
const BOUND: f64 = 0.10;
const SERVICE_MS: f64 = 18.0;

pub(super) fn run(args: &Args) -> Result<()> {
    let strategies = STRATEGIES.join(",");
    if !args.reuse {
        tail::run(&tail::Args {
            all: false,
            only: Some("p2".to_owned()),
            requests: 20_000,
            seed: 1,
            strategies: Some(strategies.clone()),
        })?;
    }
    let (sh, folder) = (shell()?, scratch("bench-tail"));
    let real = read_json(&folder.join("p2.json")).context("run without --reuse")?;
    let (experiment, report) = (folder.join("fidelity.toml"), folder.join("fidelity.json"));
    let network = network(&real)?;
    let real_experiment = sh.read_file(folder.join("p2.toml"))?;
    sh.write_file(&experiment, real_experiment + &network)?;
    step("simulating the same");
    let loadgen = release("parapet-loadgen");
    let simulate = cmd!(
        sh,
        "{loadgen} simulate --experiment {experiment} --strategy {strategies} --queries 400000
            --seed 1 --json {report}"
    );
    simulate.quiet().ignore_stdout().run()?;
    let simulated = &read_json(&report)?["comparison"];
    println!(
        "{:<18} {:>8} {:>10} {:>10} {:>8}",
        "strategy", "", "real, ms", "sim., ms", "ratio"
    );
    let mut worst: f64 = 0.0;
    for name in STRATEGIES {
        let (real, simulated) = (strategy(&real, name)?, strategy(simulated, name)?);
        for percentile in ["p50", "p99", "p99_9"] {
            let pointer = format!("/latency/{percentile}");
            let (real, simulated) = (figure(real, &pointer)?, figure(simulated, &pointer)?);
            let ratio = simulated / real;
            worst = worst.max((ratio - 1.0).abs());
            println!("{name:<18} {percentile:>8} {real:>10.2} {simulated:>10.2} {ratio:>8.3}");
        }
    }
    let (worst, bound) = (worst * 100.0, BOUND * 100.0);
    ensure!(worst <= bound, "a percentile is {worst:.1} % off");
    println!("All within {worst:.1} %.");
    Ok(())
}

fn strategy<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let mut strategies = report["strategies"].as_array().into_iter().flatten();
    let found = strategies.find(|strategy| strategy["name"] == name);
    found.with_context(|| format!("the report has no strategy {name}"))
}

/// The experiment's table of the network, with the delays of the real run. What a latency has
/// beyond the service time is taken for a shifted exponential, whose `-ln(1 - q)` is linear in the
/// latency: two quantiles of the lower half give it.
fn network(real: &Value) -> Result<String> {
    let spectrum = strategy(real, "none")?["spectrum"].as_array();
    let points = spectrum.context("a report without a spectrum")?;
    let point = |above: f64| -> Option<(f64, f64)> {
        points.iter().find_map(|point| {
            let (quantile, ms) = (point["quantile"].as_f64()?, point["ms"].as_f64()?);
            (quantile >= above).then_some((-(1.0 - quantile).ln(), ms - SERVICE_MS))
        })
    };
    let lower_half = point(0.1).zip(point(0.45));
    let ((low, low_ms), (high, high_ms)) =
        lower_half.context("a spectrum without its lower half")?;
    let mean = ((high_ms - low_ms) / (high - low)).max(0.0);
    let shift = (low_ms - low * mean).max(0.0);
    ensure!(shift > 0.0, "the median is below the emulated service time");
    let (client, hop) = (shift / 2.0, shift / 4.0);
    Ok(format!(
        "\n[simulation.network]\n\
         client = {{ constant_ms = {client:.4} }}\n\
         to_instance = {{ constant_ms = {hop:.4} }}\n\
         to_frontend = {{ constant_ms = {hop:.4}, exponential_ms = {mean:.4} }}\n"
    ))
}
