//! `cargo xtask bench tail`: redundancy strategies side by side on emulated instances, by
//! `loadgen/experiments/tail.toml` and variants of it. Tables for `loadgen/RESULTS.md` are left
//! beside the reports.

mod faults;

use super::build_serving;
use crate::models::{Model, shown};
use crate::prelude::*;
use faults::Faults;

/// Begins a strategy of an experiment.
const ARM: &str = "[[strategies]]\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The variants too, which take an hour
    #[arg(long)]
    all: bool,
    /// Only variants whose name contains this
    #[arg(long)]
    only: Option<String>,
}

#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    title: &'static str,
    k: usize,
    r: usize,
    /// Instances beside the 12 of the deployed model.
    redundant: usize,
    faults: Faults,
    /// Requests per second.
    rate: usize,
    /// Requests that an instance has at a time, and may answer as a batch.
    batch: usize,
    /// Strategies that are run; all if there are none.
    strategies: &'static [&'static str],
}

const TAIL: Variant = Variant {
    name: "tail",
    title: "k = 2, 1 % stragglers",
    k: 2,
    r: 1,
    redundant: 6,
    faults: Faults::Straggle(0.01),
    rate: 270,
    batch: 1,
    strategies: &[],
};

const fn straggling(name: &'static str, title: &'static str, share: f64) -> Variant {
    Variant { name, title, faults: Faults::Straggle(share), ..TAIL }
}

const fn coded(name: &'static str, title: &'static str, rate: usize, batch: usize) -> Variant {
    let strategies = &["none", "equal_resources", "coded"];
    Variant { name, title, rate, batch, strategies, ..TAIL }
}

/// `coded` and what ParM was compared with, and what a team would use.
const COMPARED: &[&str] = &["none", "equal_resources", "hedge", "approximate_backup", "coded"];

const VARIANTS: [Variant; 16] = [
    TAIL,
    Variant { name: "k3", title: "k = 3, 12 + 4 instances", k: 3, redundant: 4, ..TAIL },
    Variant { name: "k4", title: "k = 4, 12 + 3 instances", k: 4, redundant: 3, ..TAIL },
    straggling("p0.5", "0.5 % stragglers", 0.005),
    straggling("p2", "2 % stragglers", 0.02),
    straggling("p4", "4 % stragglers", 0.04),
    Variant { k: 4, r: 2, ..straggling("r2", "k = 4, r = 2, 4 % stragglers", 0.04) },
    Variant { name: "correlated", title: "40 % slow together", faults: Faults::Correlated, ..TAIL },
    coded("rate150", "150 requests/s", 150, 1),
    coded("rate210", "210 requests/s", 210, 1),
    coded("rate330", "330 requests/s", 330, 1),
    coded("rate390", "390 requests/s", 390, 1),
    coded("batch2", "batches of up to 2, 540 requests/s", 540, 2),
    coded("batch4", "batches of up to 4, 1080 requests/s", 1080, 4),
    Variant {
        name: "transfers",
        title: "four bulk transfers between instances at any time",
        faults: Faults::Transfers,
        strategies: COMPARED,
        ..TAIL
    },
    Variant {
        name: "quotas",
        title: "1 % of a processor for two of 18 instances",
        faults: Faults::Quotas,
        strategies: COMPARED,
        ..TAIL
    },
];

/// Columns after the name: title, place in the report of a strategy, digits.
const COLUMNS: [(&str, &str, &str); 16] = [
    ("instances", "/instances", "0"),
    ("requests", "/latency/count", "0"),
    ("failed", "/counts/failed", "0"),
    ("unanswered", "/counts/unanswered", "0"),
    ("unsent", "/counts/unsent", "0"),
    ("p50 ms", "/latency/p50", "2"),
    ("p99", "/latency/p99", "2"),
    ("p99.9", "/latency/p99_9", "2"),
    ("gap", "/gap_ms/value", "2"),
    ("ratio", "/gap_ratio/value", "2"),
    ("95 % from", "/gap_ratio/interval/low", "2"),
    ("to", "/gap_ratio/interval/high", "2"),
    ("reconstructed", "/provenance/reconstructed/share", "2%"),
    ("accuracy", "/accuracy/accuracy", "1%"),
    ("of these", "/provenance/reconstructed/accuracy/accuracy", "1%"),
    ("extra work", "/cost/extra_work", "1%"),
];

pub(super) fn run(args: &Args) -> Result<()> {
    let is_wanted = |variant: &Variant| match &args.only {
        Some(only) => variant.name.contains(only.as_str()),
        None => args.all || variant.name == TAIL.name,
    };
    let variants: Vec<Variant> = VARIANTS.into_iter().filter(is_wanted).collect();
    let names = VARIANTS.map(|variant| variant.name).join(", ");
    ensure!(!variants.is_empty(), "no variant has that name; there are {names}");
    build_serving()?;
    let mut needed = vec![Model::deployed(), Model::small()];
    needed.extend(variants.iter().map(|variant| Model::parity((variant.k, variant.r))));
    needed.dedup_by(|one, other| one.name == other.name);
    if !needed.iter().all(Model::is_there) {
        build_trainer()?;
        models::train(&needed, true)?;
    }
    variants.iter().try_for_each(compare)
}

fn compare(variant: &Variant) -> Result<()> {
    let Variant { name, title, .. } = variant;
    step(&format!("{name}: {title}"));
    let (folder, repository) = (scratch("bench-tail"), models::repository());
    let [experiment, json, html, markdown] =
        ["toml", "json", "html", "md"].map(|ending| folder.join(format!("{name}.{ending}")));
    let (sh, data) = (shell()?, data());
    sh.write_file(&experiment, changed(variant)?)?;
    variant.faults.surround(12 + variant.redundant, |loadgen| {
        let sh = shell()?;
        let compare = cmd!(
            sh,
            "{loadgen} compare --experiment {experiment} --repository {repository}
                --images {data}/t10k-images-idx3-ubyte.gz
                --labels {data}/t10k-labels-idx1-ubyte.gz --json {json} --html {html}"
        );
        Ok(compare.quiet().run()?)
    })?;
    let report = read_json(&json)?;
    let titles = COLUMNS.map(|(title, ..)| title).join(" | ");
    let rule = "|---".repeat(1 + COLUMNS.len());
    let mut table = format!("### {title}\n\n| strategy | {titles} |\n{rule}|\n");
    let strategies = report["strategies"].as_array();
    for strategy in strategies.context("a report without strategies")? {
        let cells = COLUMNS.map(|(_, pointer, digits)| shown(strategy, pointer, digits));
        let name = strategy["name"].as_str().unwrap_or_default();
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    sh.write_file(&markdown, &table)?;
    println!("\n{table}\nReports: {}", folder.display());
    Ok(())
}

fn changed(variant: &Variant) -> Result<String> {
    let Variant { k, r, redundant, rate, batch, .. } = variant;
    let (file, code) = ("loadgen/experiments/tail.toml", (*k, *r));
    let mut text = variant.faults.replace(&shell()?.read_file(file)?)?;
    // Groups with few members have one row of two, where two late queries in a thousand are lost.
    let flush_after = if *r > 1 { 10 } else { 6 };
    for (from, to) in [
        ("flush_after_ms = 6", format!("flush_after_ms = {flush_after}")),
        ("redundant = 6", format!("redundant = {redundant}\nslots = {batch}")),
        ("rate = 270", format!("rate = {rate}")),
        ("k = 2", format!("k = {k}")),
        ("r = 1", format!("r = {r}")),
        ("[\"fashion-parity\"]", format!("{:?}", &Model::parity(code).entries[..*r])),
        ("fashion-student-k2-r1", Model::student(code)),
        ("ms = 9 }", format!("ms = {} }}", 18.0 / *k as f64)),
    ] {
        ensure!(text.contains(from), "{file} has no `{from}`");
        text = text.replace(from, &to);
    }
    let is_run = |arm: &&str| {
        let is_named = |name: &&str| arm.contains(&format!("name = {name:?}\n"));
        variant.strategies.is_empty() || variant.strategies.iter().any(is_named)
    };
    let (shared, arms) = text.split_once(ARM).context("an experiment without strategies")?;
    let arms = arms.split(ARM).filter(is_run).map(|arm| format!("{ARM}{arm}"));
    Ok(shared.to_owned() + &arms.collect::<String>())
}
