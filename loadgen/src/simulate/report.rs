//! A simulation's report, for programs and for people.

use std::fmt::{self, Display, Formatter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Setup, Simulated};
use crate::compare::CompareReport;
use crate::target::Provenance;

/// Name and version of [`SimulationReport`]'s form.
pub const SCHEMA: &str = "parapet-loadgen/simulation/2";

/// The figures of all strategies of a [`Setup`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulationReport {
    /// Name and version of this form.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// True if the simulation was broken off.
    pub partial: bool,
    /// Settings of the simulation.
    pub settings: Setup,
    /// Each strategy, in the order asked for.
    pub strategies: Vec<StrategyFigures>,
    /// The comparison that real runs make, too; absent for one strategy, and where records of all
    /// queries would be too many.
    pub comparison: Option<CompareReport>,
}

/// One strategy's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyFigures {
    /// As it was asked for.
    pub name: String,
    /// Instances of all its pools.
    pub instances: usize,
    /// Figures of the strategy.
    #[serde(flatten)]
    pub simulated: Simulated,
}

/// Shows a report as aligned plain text.
#[derive(Debug)]
pub struct SimulationText<'a>(pub &'a SimulationReport);

impl Display for SimulationText<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
        let settings = &report.settings;
        writeln!(
            out,
            "simulated: {} + {} instances, {} arrivals, {} queries/s, seed {}",
            settings.instances,
            settings.redundant_instances,
            settings.arrivals,
            settings.rate,
            settings.seed
        )?;
        let width = report
            .strategies
            .iter()
            .map(|strategy| strategy.name.len())
            .max()
            .unwrap_or(0)
            .max(20);
        writeln!(out)?;
        latencies(out, report, width)?;
        writeln!(out)?;
        provenance(out, report, width)?;
        writeln!(out)?;
        redundancy(out, report, width)?;
        writeln!(out)?;
        pools(out, report, width)?;
        if report.partial {
            writeln!(out, "\nPARTIAL: the simulation was broken off")?;
        }
        Ok(())
    }
}

fn header(out: &mut Formatter<'_>, width: usize, name: &str, columns: &[&str]) -> fmt::Result {
    write!(out, "{name:<width$}")?;
    columns
        .iter()
        .try_for_each(|column| write!(out, "{column:>14}"))?;
    writeln!(out)
}

fn latencies(out: &mut Formatter<'_>, report: &SimulationReport, width: usize) -> fmt::Result {
    let columns = [
        "queries", "failed", "p50", "mean", "p90", "p99", "p99.5", "p99.9", "max",
    ];
    header(out, width, "latency in ms, all", &columns)?;
    for strategy in &report.strategies {
        let Some(all) = strategy.simulated.latency.all else {
            continue;
        };
        let failed = strategy.simulated.counts.failed;
        write!(
            out,
            "{:<width$}{:>14}{failed:>14}",
            strategy.name, all.count
        )?;
        let times = [
            all.p50, all.mean, all.p90, all.p99, all.p99_5, all.p99_9, all.max,
        ];
        times
            .iter()
            .try_for_each(|time| write!(out, "{time:>14.3}"))?;
        writeln!(out)?;
    }
    Ok(())
}

fn provenance(out: &mut Formatter<'_>, report: &SimulationReport, width: usize) -> fmt::Result {
    let kinds = [
        Provenance::Exact,
        Provenance::Hedged,
        Provenance::Backup,
        Provenance::Reconstructed,
    ];
    let names = kinds.map(|kind| kind.to_string());
    header(
        out,
        width,
        "share of answers, %",
        &names.each_ref().map(String::as_str),
    )?;
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        write!(out, "{name:<width$}")?;
        for kind in &kinds {
            let share = simulated
                .provenance
                .get(kind)
                .map_or(0.0, |answered| 100.0 * answered.share);
            write!(out, "{share:>14.3}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn redundancy(out: &mut Formatter<'_>, report: &SimulationReport, width: usize) -> fmt::Result {
    let columns = [
        "issued",
        "won",
        "wasted",
        "shed",
        "failed",
        "no remedy",
        "retries",
        "late at ms",
    ];
    header(out, width, "redundant requests", &columns)?;
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        let work = simulated.redundancy;
        let Simulated {
            retries,
            hold_back_ms,
            ..
        } = simulated;
        write!(out, "{name:<width$}")?;
        let counts = [
            work.issued,
            work.won,
            work.wasted,
            work.shed,
            work.failed,
            work.unrecoverable,
            *retries,
        ];
        counts
            .iter()
            .try_for_each(|count| write!(out, "{count:>14}"))?;
        writeln!(out, "{hold_back_ms:>14.3}")?;
    }
    Ok(())
}

fn pools(out: &mut Formatter<'_>, report: &SimulationReport, width: usize) -> fmt::Result {
    header(
        out,
        width,
        "pools",
        &["serves", "instances", "busy, %", "mean queue", "max queue"],
    )?;
    for StrategyFigures {
        name, simulated, ..
    } in &report.strategies
    {
        for pool in &simulated.pools {
            let busy = 100.0 * pool.utilisation;
            write!(
                out,
                "{name:<width$}{:>14}{:>14}{busy:>14.2}",
                pool.role, pool.instances
            )?;
            writeln!(out, "{:>14.2}{:>14}", pool.mean_queue, pool.max_queue)?;
        }
    }
    Ok(())
}
