//! `cargo xtask bench tail`: redundancy strategies side by side on emulated instances, by
//! `loadgen/experiments/tail.toml` and variants of it. Tables for `loadgen/RESULTS.md` are left
//! beside the reports.

use crate::models::{Model, shown};
use crate::prelude::*;
use toml::Table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The variants too, which take an hour
    #[arg(long)]
    pub(super) all: bool,
    /// Only variants whose name contains this
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Requests to each strategy
    #[arg(long, default_value_t = 20_000)]
    pub(super) requests: usize,
    /// Seed of schedules, rows and faults
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Only these strategies of the experiment, with commas between them
    #[arg(long)]
    pub(super) strategies: Option<String>,
}

/// Name and title; k; instances beside the 12 of the deployed model; share of batches that
/// straggle, none where slowdowns are correlated.
type Variant = (&'static str, &'static str, usize, i64, Option<f64>);

const VARIANTS: [Variant; 7] = [
    ("tail", "k = 2, 1 % stragglers", 2, 6, Some(0.01)),
    ("k3", "k = 3, 12 + 4 instances", 3, 4, Some(0.01)),
    ("k4", "k = 4, 12 + 3 instances", 4, 3, Some(0.01)),
    ("p0.5", "0.5 % stragglers", 2, 6, Some(0.005)),
    ("p2", "2 % stragglers", 2, 6, Some(0.02)),
    ("p4", "4 % stragglers", 2, 6, Some(0.04)),
    ("correlated", "40 % slow together", 2, 6, None),
];

/// Two-second periods, about a third of the time, in which 40 % of the instances take 15 to
/// 45 ms longer.
const CORRELATED: &str = "share = 0.4\ncorrelated = true\nmean_interval_ms = 4000\n\
    length = { min_ms = 1000, max_ms = 3000 }\nadded = { min_ms = 15, max_ms = 45 }\n";

/// Columns after the name: title, place in the report of a strategy, digits.
const COLUMNS: &str = "\
instances|/instances|0
requests|/latency/count|0
failed|/counts/failed|0
unanswered|/counts/unanswered|0
unsent|/counts/unsent|0
p50 ms|/latency/p50|2
p99|/latency/p99|2
p99.9|/latency/p99_9|2
gap|/gap_ms/value|2
ratio|/gap_ratio/value|2
95 % from|/gap_ratio/interval/low|2
to|/gap_ratio/interval/high|2
reconstructed|/provenance/reconstructed/share|2%
accuracy|/accuracy/accuracy|1%
of these|/provenance/reconstructed/accuracy/accuracy|1%
extra work|/cost/extra_work|1%";

pub(super) fn run(args: &Args) -> Result<()> {
    let is_wanted = |(name, ..): &Variant| match &args.only {
        Some(only) => name.contains(only.as_str()),
        None => args.all || *name == "tail",
    };
    let variants: Vec<Variant> = VARIANTS.into_iter().filter(is_wanted).collect();
    let names = VARIANTS.map(|(name, ..)| name).join(", ");
    ensure!(
        !variants.is_empty(),
        "no variant has that name; there are {names}"
    );
    build_serving()?;
    let mut needed = vec![Model::deployed(), Model::small()];
    needed.extend(variants.iter().map(|(_, _, k, ..)| Model::parity(*k)));
    needed.dedup_by(|one, other| one.name == other.name);
    if !needed.iter().all(Model::is_there) {
        build_trainer()?;
        models::train(&needed, args.seed, true)?;
    }
    let mut wanted = variants.iter();
    wanted.try_for_each(|variant| compare(args, variant))
}

fn compare(args: &Args, variant: &Variant) -> Result<()> {
    let (name, title, ..) = variant;
    step(&format!("{name}: {title}"));
    let (sh, folder, repository) = (shell()?, scratch("bench-tail"), models::repository());
    let [experiment, json, html, markdown] =
        ["toml", "json", "html", "md"].map(|ending| folder.join(format!("{name}.{ending}")));
    sh.write_file(&experiment, changed(variant)?.to_string())?;
    let (loadgen, data) = (release("parapet-loadgen"), data());
    let (requests, seed) = (args.requests.to_string(), args.seed.to_string());
    let only = args.strategies.iter();
    let only = only.flat_map(|names| ["--strategies", names]);
    let compare = cmd!(
        sh,
        "{loadgen} compare {only...} --experiment {experiment} --repository {repository}
            --images {data}/t10k-images-idx3-ubyte.gz --labels {data}/t10k-labels-idx1-ubyte.gz
            --requests {requests} --seed {seed} --json {json} --html {html}"
    );
    compare.quiet().run()?;
    let report = read_json(&json)?;
    let columns = COLUMNS.lines().map(|line| line.split('|').collect());
    let columns: Vec<Vec<&str>> = columns.collect();
    let titles: Vec<&str> = columns.iter().map(|column| column[0]).collect();
    let (titles, rule) = (titles.join(" | "), "|---".repeat(1 + columns.len()));
    let mut table = format!("### {title}\n\n| strategy | {titles} |\n{rule}|\n");
    let strategies = report["strategies"].as_array();
    for strategy in strategies.context("a report without strategies")? {
        let cell = |column: &Vec<&str>| shown(strategy, column[1], column[2]);
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let name = strategy["name"].as_str().unwrap_or_default();
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    sh.write_file(&markdown, &table)?;
    println!("\n{table}\nReports: {}", folder.display());
    Ok(())
}

fn changed((_, _, k, redundant, straggle): &Variant) -> Result<Table> {
    let text = shell()?.read_file("loadgen/experiments/tail.toml")?;
    let mut experiment: Table = text.parse()?;
    table(&mut experiment, "instances")?.insert("redundant".to_owned(), (*redundant).into());
    let faults = table(&mut experiment, "faults")?;
    if let Some(straggle) = straggle {
        table(faults, "straggle")?.insert("probability".to_owned(), (*straggle).into());
    } else {
        faults.remove("straggle");
        faults.insert("slowdown".to_owned(), CORRELATED.parse::<Table>()?.into());
    }
    let strategies = experiment
        .get_mut("strategies")
        .and_then(toml::Value::as_array_mut);
    for strategy in strategies
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_table_mut)
    {
        if !strategy.contains_key("parity_models") {
            continue;
        }
        table(strategy, "settings")?.insert("k".to_owned(), (*k as i64).into());
        let model = Model::parity(*k).name;
        strategy.insert("parity_models".to_owned(), vec![model].into());
        if let Some(toml::Value::String(description)) = strategy.get_mut("description") {
            *description = description.replace("k = 2", &format!("k = {k}"));
        }
    }
    Ok(experiment)
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table> {
    let value = parent.get_mut(key).and_then(toml::Value::as_table_mut);
    value.with_context(|| format!("loadgen/experiments/tail.toml has no table {key}"))
}
