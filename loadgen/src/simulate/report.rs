//! A simulation's report, for programs and for people.

use std::fmt::{self, Display, Formatter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Setup, Simulated};
use crate::compare::CompareReport;
use crate::report::table::{Table, percent};
use crate::target::Provenance;

/// Name and version of [`SimulationReport`]'s form.
pub const SCHEMA: &str = "parapet-loadgen/simulation/2";

/// The figures of all strategies of a [`Setup`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulationReport {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// True if the simulation was broken off.
    pub partial: bool,
    pub settings: Setup,
    /// Each strategy, in the order asked for.
    pub strategies: Vec<StrategyFigures>,
    /// The comparison that real runs make, too; absent for one strategy, and where records of all
    /// queries would be too many.
    pub comparison: Option<CompareReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyFigures {
    /// As it was asked for.
    pub name: String,
    /// Instances of all its pools.
    pub instances: usize,
    #[serde(flatten)]
    pub simulated: Simulated,
}

impl Display for SimulationReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Setup {
            instances,
            redundant_instances,
            arrivals,
            rate,
            seed,
            ..
        } = &self.settings;
        writeln!(
            out,
            "simulated: {instances} + {redundant_instances} instances, {arrivals} arrivals, {rate} \
             queries/s, seed {seed}\n"
        )?;
        let tables = [
            latencies(self),
            provenance(self),
            redundancy(self),
            pools(self),
        ];
        let tables = tables.map(|table| table.to_string());
        write!(out, "{}", tables.join("\n"))?;
        if self.partial {
            writeln!(out, "\nPARTIAL: the simulation was broken off")?;
        }
        Ok(())
    }
}

fn latencies(report: &SimulationReport) -> Table {
    let mut table = Table::new([
        "latency in ms, all",
        "queries",
        "failed",
        "p50",
        "mean",
        "p90",
        "p99",
        "p99.5",
        "p99.9",
        "max",
    ]);
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        if let Some(all) = simulated.latency.all {
            let counts = [all.count.to_string(), simulated.counts.failed.to_string()];
            let times = all.figures().map(|(_, time)| format!("{time:.3}"));
            table.row(name, counts.into_iter().chain(times));
        }
    }
    table
}

fn provenance(report: &SimulationReport) -> Table {
    use Provenance::{Backup, Exact, Hedged, Reconstructed};
    let kinds = [Exact, Hedged, Backup, Reconstructed];
    let names = kinds.map(|kind| kind.to_string());
    let names = names.iter().map(String::as_str);
    let mut table = Table::new(std::iter::once("share of answers").chain(names));
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        let share = |kind| {
            simulated
                .provenance
                .get(&kind)
                .map_or(0.0, |answers| answers.share)
        };
        table.row(name, kinds.map(|kind| percent(Some(share(kind)))));
    }
    table
}

fn redundancy(report: &SimulationReport) -> Table {
    let mut table = Table::new([
        "redundant requests",
        "issued",
        "won",
        "wasted",
        "shed",
        "failed",
        "no remedy",
        "retries",
        "late at ms",
    ]);
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        let work = simulated.redundancy;
        let counts = [
            work.issued,
            work.won,
            work.wasted,
            work.shed,
            work.failed,
            work.unrecoverable,
            simulated.retries,
        ];
        let late = format!("{:.3}", simulated.hold_back_ms);
        table.row(
            name,
            counts
                .map(|count| count.to_string())
                .into_iter()
                .chain([late]),
        );
    }
    table
}

fn pools(report: &SimulationReport) -> Table {
    let mut table = Table::new([
        "pools",
        "serves",
        "instances",
        "busy",
        "mean queue",
        "max queue",
    ]);
    for strategy in &report.strategies {
        for pool in &strategy.simulated.pools {
            let cells = [
                pool.role.clone(),
                pool.instances.to_string(),
                percent(Some(pool.utilisation)),
                format!("{:.2}", pool.mean_queue),
                pool.max_queue.to_string(),
            ];
            table.row(&strategy.name, cells);
        }
    }
    table
}
