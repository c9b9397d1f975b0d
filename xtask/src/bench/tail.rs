//! `cargo xtask bench tail`: redundancy strategies side by side on emulated instances, and what
//! each buys at the tail.
//!
//! The experiment is `loadgen/experiments/tail.toml`. `--all` adds its variants (k = 3 and 4, other
//! shares of stragglers, correlated slowdowns), which take an hour. Tables for `loadgen/RESULTS.md`
//! are left beside the reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use toml::Table;

use crate::demo::binary;
use crate::models::{self, Model};
use crate::workspace::step;
use crate::{cargo, native, workspace};

/// Arguments of `cargo xtask bench tail`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The variants too: k = 3 and 4, other shares of stragglers, correlated slowdowns
    #[arg(long)]
    all: bool,
    /// Only variants whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Requests to each strategy
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Seed of schedules, rows and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these strategies of the experiment
    #[arg(long, value_delimiter = ',')]
    strategies: Vec<String>,
}

impl Args {
    /// One variant with some of its strategies.
    pub(super) fn only(variant: &str, requests: usize, seed: u64, strategies: &[&str]) -> Self {
        let strategies = strategies.iter().map(|&name| name.to_owned()).collect();
        Self {
            all: false,
            only: Some(variant.to_owned()),
            requests,
            seed,
            strategies,
        }
    }
}

/// Where its reports are.
pub(super) fn folder() -> PathBuf {
    workspace::root().join(".parapet/bench-tail")
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    native::run(&native::Args::default())?;
    cargo::build_serving()?;
    let variants: Vec<Variant> = Variant::all()
        .into_iter()
        .filter(|variant| args.all || variant.name == "tail" || args.only.is_some())
        .filter(|variant| {
            args.only
                .as_ref()
                .is_none_or(|only| variant.name.contains(only.as_str()))
        })
        .collect();
    ensure!(
        !variants.is_empty(),
        "no variant has that name; there are {}",
        names(&Variant::all())
    );
    let mut needed = vec![Model::Deployed, Model::Small];
    needed.extend(
        variants
            .iter()
            .map(|variant| Model::Parity { k: variant.k }),
    );
    needed.dedup();
    let missing = needed
        .iter()
        .any(|model| !models::repository().join(model.name()).is_dir());
    if missing {
        cargo::run(&["build", "-p", "parity-trainer"])?;
        models::train(&needed, args.seed, true)?;
    }
    let folder = folder();
    fs::create_dir_all(&folder).context("cannot make .parapet/bench-tail")?;
    for variant in &variants {
        step(&format!("{}: {}", variant.name, variant.title));
        variant.run(args, &folder)?;
    }
    Ok(())
}

fn names(variants: &[Variant]) -> String {
    variants
        .iter()
        .map(|variant| variant.name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The experiment with something changed.
#[derive(Debug)]
struct Variant {
    name: &'static str,
    title: &'static str,
    k: usize,
    redundant: i64,
    straggle: f64,
    correlated: bool,
}

impl Variant {
    fn all() -> Vec<Self> {
        let base = Self {
            name: "tail",
            title: "12 + 6 instances, k = 2, 1 % stragglers",
            k: 2,
            redundant: 6,
            straggle: 0.01,
            correlated: false,
        };
        vec![
            Self { ..base },
            Self {
                name: "k3",
                title: "12 + 4 instances, k = 3",
                k: 3,
                redundant: 4,
                ..base
            },
            Self {
                name: "k4",
                title: "12 + 3 instances, k = 4",
                k: 4,
                redundant: 3,
                ..base
            },
            Self {
                name: "p0.5",
                title: "0.5 % stragglers",
                straggle: 0.005,
                ..base
            },
            Self {
                name: "p2",
                title: "2 % stragglers",
                straggle: 0.02,
                ..base
            },
            Self {
                name: "p4",
                title: "4 % stragglers",
                straggle: 0.04,
                ..base
            },
            Self {
                name: "correlated",
                title: "slowdowns that hit 40 % of the instances together",
                straggle: 0.0,
                correlated: true,
                ..base
            },
        ]
    }

    fn run(&self, args: &Args, folder: &Path) -> Result<()> {
        let experiment = folder.join(format!("{}.toml", self.name));
        workspace::write(&experiment, self.experiment()?.to_string())?;
        let (json, html) = (
            folder.join(format!("{}.json", self.name)),
            folder.join(format!("{}.html", self.name)),
        );
        let mut command = Command::new(binary("parapet-loadgen"));
        if !args.strategies.is_empty() {
            command.args(["compare", "--strategies", &args.strategies.join(",")]);
        } else {
            command.arg("compare");
        }
        let status = command
            .arg("--experiment")
            .arg(&experiment)
            .arg("--repository")
            .arg(models::repository())
            .arg("--images")
            .arg(models::data().join("t10k-images-idx3-ubyte.gz"))
            .arg("--labels")
            .arg(models::data().join("t10k-labels-idx1-ubyte.gz"))
            .args([
                "--requests",
                &args.requests.to_string(),
                "--seed",
                &args.seed.to_string(),
            ])
            .arg("--json")
            .arg(&json)
            .arg("--html")
            .arg(&html)
            .status()
            .context("cannot start parapet-loadgen")?;
        ensure!(status.success(), "parapet-loadgen failed ({status})");
        let table = self.table(&json)?;
        let path = folder.join(format!("{}.md", self.name));
        workspace::write(&path, &table)?;
        println!("\n{table}");
        println!("Reports: {} and {}", html.display(), json.display());
        Ok(())
    }

    /// The committed experiment with this variant's changes.
    fn experiment(&self) -> Result<Table> {
        let path = workspace::root().join("loadgen/experiments/tail.toml");
        let text = workspace::read(&path)?;
        let mut experiment: Table = text
            .parse()
            .with_context(|| format!("{} is no TOML", path.display()))?;
        table(&mut experiment, "instances")?.insert("redundant".to_owned(), self.redundant.into());
        let faults = table(&mut experiment, "faults")?;
        if self.correlated {
            faults.remove("straggle");
            faults.insert("slowdown".to_owned(), CORRELATED.parse::<Table>()?.into());
        } else {
            table(faults, "straggle")?.insert("probability".to_owned(), self.straggle.into());
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
            let model = Model::Parity { k: self.k }.name();
            strategy.insert("parity_models".to_owned(), vec![model].into());
            if let Some(description) = strategy.get("description").and_then(toml::Value::as_str) {
                let description = description.replace("k = 2", &format!("k = {}", self.k));
                strategy.insert("description".to_owned(), description.into());
            }
        }
        Ok(experiment)
    }

    /// The report's figures as a table.
    fn table(&self, json: &Path) -> Result<String> {
        let text = workspace::read(json)?;
        let report: Value = serde_json::from_str(&text).context("the report is no JSON")?;
        let mut rows = format!("### {}\n\n{HEADER}\n", self.title);
        let strategies = report["strategies"]
            .as_array()
            .context("a report without strategies")?;
        for strategy in strategies {
            let number = |pointer: &str| strategy.pointer(pointer).and_then(Value::as_f64);
            let shown = |pointer: &str, digits: usize| {
                number(pointer).map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let percent = |pointer: &str, digits: usize| {
                number(pointer).map_or_else(
                    || "-".to_owned(),
                    |value| format!("{:.digits$} %", value * 100.0),
                )
            };
            let interval = match (
                number("/gap_ratio/interval/low"),
                number("/gap_ratio/interval/high"),
            ) {
                (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
                _ => "-".to_owned(),
            };
            let lost = ["failed", "unanswered", "unsent"]
                .iter()
                .filter_map(|kind| strategy["counts"][kind].as_u64())
                .sum::<u64>();
            rows.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {interval} | {} | {} | {} | {} |\n",
                strategy["name"].as_str().unwrap_or_default(),
                strategy["instances"],
                shown("/latency/count", 0),
                lost,
                shown("/latency/p50", 2),
                shown("/latency/p99", 2),
                shown("/latency/p99_9", 2),
                shown("/gap_ms/value", 2),
                shown("/gap_ratio/value", 2),
                percent("/provenance/reconstructed/share", 2),
                percent("/accuracy/accuracy", 1),
                percent("/provenance/reconstructed/accuracy/accuracy", 1),
                percent("/cost/extra_work", 1),
            ));
        }
        Ok(rows)
    }
}

const HEADER: &str = "| strategy | instances | requests | lost | p50 ms | p99 | p99.9 | gap | \
    ratio | 95 % | reconstructed | accuracy | of these | extra work \
    |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// Two-second periods, about a third of the time, in which 40 % of the instances take 15 to
/// 45 ms longer.
const CORRELATED: &str = "share = 0.4\ncorrelated = true\nmean_interval_ms = 4000\n\
    length = { min_ms = 1000, max_ms = 3000 }\nadded = { min_ms = 15, max_ms = 45 }\n";

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table> {
    parent
        .get_mut(key)
        .and_then(toml::Value::as_table_mut)
        .with_context(|| format!("loadgen/experiments/tail.toml has no table {key}"))
}
