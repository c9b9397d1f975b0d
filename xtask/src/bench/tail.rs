//! `cargo xtask bench tail`: redundancy strategies side by side on emulated instances, and what
//! each buys at the tail.
//!
//! The experiment is `loadgen/experiments/tail.toml`. `--all` adds its variants (k = 3 and 4, other
//! shares of stragglers, correlated slowdowns), which take an hour. Tables for `loadgen/RESULTS.md`
//! are left beside the reports.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toml::Table;
use xshell::cmd;

use crate::models::{self, Model, figure};
use crate::workspace::{
    build_serving, build_trainer, data, read_json, release, scratch, shell, step,
};

/// Arguments of `cargo xtask bench tail`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The variants too: k = 3 and 4, other shares of stragglers, correlated slowdowns
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

/// The experiment with something changed.
#[derive(Debug, Clone, Copy)]
struct Variant {
    name: &'static str,
    title: &'static str,
    k: usize,
    /// Instances beside the 12 of the deployed model.
    redundant: i64,
    /// Share of batches that straggle; none where slowdowns are correlated.
    straggle: Option<f64>,
}

const fn variant(
    name: &'static str,
    title: &'static str,
    (k, redundant): (usize, i64),
    straggle: Option<f64>,
) -> Variant {
    Variant {
        name,
        title,
        k,
        redundant,
        straggle,
    }
}

const VARIANTS: [Variant; 7] = [
    variant(
        "tail",
        "12 + 6 instances, k = 2, 1 % stragglers",
        (2, 6),
        Some(0.01),
    ),
    variant("k3", "12 + 4 instances, k = 3", (3, 4), Some(0.01)),
    variant("k4", "12 + 3 instances, k = 4", (4, 3), Some(0.01)),
    variant("p0.5", "0.5 % stragglers", (2, 6), Some(0.005)),
    variant("p2", "2 % stragglers", (2, 6), Some(0.02)),
    variant("p4", "4 % stragglers", (2, 6), Some(0.04)),
    variant(
        "correlated",
        "slowdowns that hit 40 % of the instances together",
        (2, 6),
        None,
    ),
];

/// Two-second periods, about a third of the time, in which 40 % of the instances take 15 to
/// 45 ms longer.
const CORRELATED: &str = "share = 0.4\ncorrelated = true\nmean_interval_ms = 4000\n\
    length = { min_ms = 1000, max_ms = 3000 }\nadded = { min_ms = 15, max_ms = 45 }\n";

/// Runs the benchmark.
pub(super) fn run(args: &Args) -> Result<()> {
    let is_wanted = |variant: &Variant| match &args.only {
        Some(only) => variant.name.contains(only.as_str()),
        None => args.all || variant.name == "tail",
    };
    let variants: Vec<Variant> = VARIANTS.into_iter().filter(is_wanted).collect();
    let names = VARIANTS.map(|variant| variant.name).join(", ");
    ensure!(
        !variants.is_empty(),
        "no variant has that name; there are {names}"
    );
    build_serving()?;
    let mut needed = vec![Model::deployed(), Model::small()];
    needed.extend(variants.iter().map(|variant| Model::parity(variant.k)));
    needed.dedup_by(|one, other| one.name == other.name);
    if !needed.iter().all(Model::is_there) {
        build_trainer()?;
        models::train(&needed, args.seed, true)?;
    }
    for variant in &variants {
        step(&format!("{}: {}", variant.name, variant.title));
        variant.run(args)?;
    }
    Ok(())
}

impl Variant {
    fn run(&self, args: &Args) -> Result<()> {
        let (sh, folder, repository) = (shell()?, scratch("bench-tail"), models::repository());
        let [experiment, json, html, markdown] = ["toml", "json", "html", "md"]
            .map(|ending| folder.join(format!("{}.{ending}", self.name)));
        sh.write_file(&experiment, self.experiment()?.to_string())?;
        let (loadgen, data) = (release("parapet-loadgen"), data());
        let (requests, seed) = (args.requests.to_string(), args.seed.to_string());
        let only = args
            .strategies
            .iter()
            .flat_map(|names| ["--strategies", names]);
        let compare = cmd!(
            sh,
            "{loadgen} compare {only...} --experiment {experiment} --repository {repository}
                --images {data}/t10k-images-idx3-ubyte.gz --labels {data}/t10k-labels-idx1-ubyte.gz
                --requests {requests} --seed {seed} --json {json} --html {html}"
        );
        compare.quiet().run()?;
        let table = self.table(&read_json(&json)?)?;
        sh.write_file(&markdown, &table)?;
        println!(
            "\n{table}\nReports: {} and {}",
            html.display(),
            json.display()
        );
        Ok(())
    }

    /// The committed experiment with this variant's changes.
    fn experiment(&self) -> Result<Table> {
        let mut experiment: Table = shell()?
            .read_file("loadgen/experiments/tail.toml")?
            .parse()?;
        table(&mut experiment, "instances")?.insert("redundant".to_owned(), self.redundant.into());
        let faults = table(&mut experiment, "faults")?;
        if let Some(straggle) = self.straggle {
            table(faults, "straggle")?.insert("probability".to_owned(), straggle.into());
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
            table(strategy, "settings")?.insert("k".to_owned(), (self.k as i64).into());
            let model = Model::parity(self.k).name;
            strategy.insert("parity_models".to_owned(), vec![model].into());
            if let Some(toml::Value::String(description)) = strategy.get_mut("description") {
                *description = description.replace("k = 2", &format!("k = {}", self.k));
            }
        }
        Ok(experiment)
    }

    /// The report's figures as a table.
    fn table(&self, report: &Value) -> Result<String> {
        let mut rows = format!(
            "### {}\n\n| strategy | instances | requests | lost | p50 ms | p99 | p99.9 | gap | \
             ratio | 95 % | reconstructed | accuracy | of these | extra work |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
            self.title
        );
        let strategies = report["strategies"]
            .as_array()
            .context("a report without strategies")?;
        for strategy in strategies {
            let shown = |pointer: &str, digits: usize| {
                let number = figure(strategy, pointer);
                number.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let percent = |pointer: &str, digits: usize| {
                let number = figure(strategy, pointer);
                number.map_or("-".to_owned(), |value| {
                    format!("{:.digits$} %", value * 100.0)
                })
            };
            let [low, high] = ["low", "high"].map(|end| format!("/gap_ratio/interval/{end}"));
            let interval = match (shown(&low, 2), shown(&high, 2)) {
                (low, high) if low == "-" || high == "-" => "-".to_owned(),
                (low, high) => format!("{low} to {high}"),
            };
            let lost = ["failed", "unanswered", "unsent"]
                .map(|kind| strategy["counts"][kind].as_u64().unwrap_or_default());
            let cells = [
                strategy["name"].as_str().unwrap_or_default().to_owned(),
                strategy["instances"].to_string(),
                shown("/latency/count", 0),
                lost.iter().sum::<u64>().to_string(),
                shown("/latency/p50", 2),
                shown("/latency/p99", 2),
                shown("/latency/p99_9", 2),
                shown("/gap_ms/value", 2),
                shown("/gap_ratio/value", 2),
                interval,
                percent("/provenance/reconstructed/share", 2),
                percent("/accuracy/accuracy", 1),
                percent("/provenance/reconstructed/accuracy/accuracy", 1),
                percent("/cost/extra_work", 1),
            ];
            rows += &format!("| {} |\n", cells.join(" | "));
        }
        Ok(rows)
    }
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table> {
    let value = parent.get_mut(key).and_then(toml::Value::as_table_mut);
    value.with_context(|| format!("loadgen/experiments/tail.toml has no table {key}"))
}
