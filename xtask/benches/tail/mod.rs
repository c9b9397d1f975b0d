//! `cargo xtask bench tail`: redundancy strategies side by side on emulated instances, by
//! `loadgen/experiments/tail.toml` and variants of it. Tables for `loadgen/RESULTS.md` are left
//! beside the reports.

use crate::models::{Model, shown};
use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The variants too, which take an hour
    #[arg(long)]
    all: bool,
    /// Only variants whose name contains this
    #[arg(long)]
    only: Option<String>,
}

/// Name and title; k and r; instances beside the 12 of the deployed model; share of batches that
/// straggle, none where slowdowns are correlated.
type Variant = (&'static str, &'static str, (usize, usize), i64, Option<f64>);

const VARIANTS: [Variant; 8] = [
    ("tail", "k = 2, 1 % stragglers", (2, 1), 6, Some(0.01)),
    ("k3", "k = 3, 12 + 4 instances", (3, 1), 4, Some(0.01)),
    ("k4", "k = 4, 12 + 3 instances", (4, 1), 3, Some(0.01)),
    ("p0.5", "0.5 % stragglers", (2, 1), 6, Some(0.005)),
    ("p2", "2 % stragglers", (2, 1), 6, Some(0.02)),
    ("p4", "4 % stragglers", (2, 1), 6, Some(0.04)),
    ("r2", "k = 4, r = 2, 4 % stragglers", (4, 2), 6, Some(0.04)),
    ("correlated", "40 % slow together", (2, 1), 6, None),
];

const STRAGGLE: &str = "straggle = { probability = 0.01, min_ms = 15, max_ms = 45 }";
/// Two-second periods, about a third of the time, in which 40 % of instances take 15 to 45 ms more.
const CORRELATED: &str = "slowdown = { share = 0.4, correlated = true, mean_interval_ms = 4000, \
    length = { min_ms = 1000, max_ms = 3000 }, added = { min_ms = 15, max_ms = 45 } }";

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
    let is_wanted = |(name, ..): &Variant| match &args.only {
        Some(only) => name.contains(only.as_str()),
        None => args.all || *name == "tail",
    };
    let variants: Vec<Variant> = VARIANTS.into_iter().filter(is_wanted).collect();
    let names = VARIANTS.map(|(name, ..)| name).join(", ");
    ensure!(!variants.is_empty(), "no variant has that name; there are {names}");
    build_serving()?;
    let mut needed = vec![Model::deployed(), Model::small()];
    needed.extend(variants.iter().map(|(_, _, code, ..)| Model::parity(*code)));
    needed.dedup_by(|one, other| one.name == other.name);
    if !needed.iter().all(Model::is_there) {
        build_trainer()?;
        models::train(&needed, true)?;
    }
    variants.iter().try_for_each(compare)
}

fn compare(variant: &Variant) -> Result<()> {
    let (name, title, ..) = variant;
    step(&format!("{name}: {title}"));
    let (sh, folder, repository) = (shell()?, scratch("bench-tail"), models::repository());
    let [experiment, json, html, markdown] =
        ["toml", "json", "html", "md"].map(|ending| folder.join(format!("{name}.{ending}")));
    sh.write_file(&experiment, changed(variant)?)?;
    let (loadgen, data) = (release("parapet-loadgen"), data());
    let compare = cmd!(
        sh,
        "{loadgen} compare --experiment {experiment} --repository {repository}
            --images {data}/t10k-images-idx3-ubyte.gz --labels {data}/t10k-labels-idx1-ubyte.gz
            --json {json} --html {html}"
    );
    compare.quiet().run()?;
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

fn changed((_, _, code, redundant, straggle): &Variant) -> Result<String> {
    let file = "loadgen/experiments/tail.toml";
    let faults = straggle
        .map_or(CORRELATED.to_owned(), |share| STRAGGLE.replace("0.01", &share.to_string()));
    let mut text = shell()?.read_file(file)?;
    // Groups with few members have one row of two, where two late queries in a thousand are lost.
    let flush_after = if code.1 > 1 { 10 } else { 6 };
    for (from, to) in [
        ("flush_after_ms = 6", format!("flush_after_ms = {flush_after}")),
        ("redundant = 6", format!("redundant = {redundant}")),
        (STRAGGLE, faults),
        ("k = 2", format!("k = {}", code.0)),
        ("r = 1", format!("r = {}", code.1)),
        ("[\"fashion-parity\"]", format!("{:?}", &Model::parity(*code).entries[..code.1])),
        ("fashion-student-k2-r1", Model::student(*code)),
        ("ms = 9 }", format!("ms = {} }}", 18.0 / code.0 as f64)),
    ] {
        ensure!(text.contains(from), "{file} has no `{from}`");
        text = text.replace(from, &to);
    }
    Ok(text)
}
