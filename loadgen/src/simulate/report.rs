//! A simulation's report, for programs and for people.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::compare::{CompareReport, Redundancy};
use crate::experiment::{Experiment, Instances};
use crate::report::page::{Cell, Page, Table, ms};
use crate::report::{Counts, Latency, Summary};
use crate::run::Recording;
use crate::target::Provenance;

pub const SCHEMA: &str = "parapet-loadgen/simulation/4";

/// The figures of all strategies of a [`Experiment`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulationReport {
    pub schema: String,
    pub partial: bool,
    pub settings: Experiment,
    pub strategies: Vec<StrategyFigures>,
    /// The comparison that real runs make, too; absent for one strategy, and where records of all
    /// queries would be too many.
    pub comparison: Option<CompareReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StrategyFigures {
    pub name: String,
    pub instances: usize,
    #[serde(flatten)]
    pub simulated: Simulated,
}

/// A simulation's figures. Times are milliseconds of virtual time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// True if it was ended before all queries were answered.
    pub partial: bool,
    pub elapsed_s: f64,
    pub counts: Counts,
    /// From a query's arrival to its answer; those without one count as the deadline in `all`.
    pub latency: Latency,
    /// Answers by how they came about; only kinds that occurred.
    pub provenance: BTreeMap<Provenance, Answered>,
    /// Failed queries by kind, as a client sees them: `http-STATUS`.
    pub errors: BTreeMap<String, usize>,
    pub redundancy: Redundancy,
    pub retries: u64,
    /// Time after which queries counted as late at the end; zero where none ever does.
    pub hold_back_ms: f64,
    /// Use of each pool, in the order of their ids.
    pub pools: Vec<PoolUse>,
    #[serde(skip)]
    pub recording: Option<Recording>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    pub count: u64,
    pub share: f64,
    pub latency: Summary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolUse {
    pub role: String,
    pub instances: usize,
    pub utilisation: f64,
    pub batches: u64,
    /// Requests that waited for a slot at the frontend, averaged over time.
    pub mean_queue: f64,
    pub max_queue: usize,
}

impl Display for SimulationReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Instances {
            deployed,
            redundant,
            ..
        } = self.settings.instances;
        let Experiment {
            arrivals,
            rate,
            seed,
            ..
        } = &self.settings;
        let mut page = Page::new(format!(
            "simulated: {deployed} + {redundant} instances, {arrivals} arrivals, {rate} \
             queries/s, seed {seed}"
        ));
        if self.partial {
            page.banner("PARTIAL", "the simulation was broken off");
        }
        let times = ["ms", "queries", "failed"]
            .into_iter()
            .chain(Summary::NAMES);
        let kinds = [
            Provenance::Exact,
            Provenance::Hedged,
            Provenance::Backup,
            Provenance::Reconstructed,
        ];
        let shares = kinds.iter().map(Provenance::to_string);
        let mut latencies = Table::new(times);
        let mut answers = Table::new(std::iter::once("share".to_owned()).chain(shares));
        let work = "issued,won,wasted,shed,failed,no remedy,retries,late at ms".split(',');
        let mut redundancy = Table::new(std::iter::once("requests").chain(work));
        let columns = ["", "serves", "instances", "busy", "mean queue", "max queue"];
        let mut pools = Table::new(columns);
        for StrategyFigures {
            name, simulated, ..
        } in &self.strategies
        {
            if let Some(all) = simulated.latency.all {
                let counts = [all.count, simulated.counts.failed as u64];
                let counts = counts
                    .map(|count| Cell::from(count.to_string()))
                    .into_iter();
                let times = all.figures().map(|(_, time)| Cell::from(ms(time)));
                latencies.row(name, counts.chain(times));
            }
            let share = |kind| simulated.provenance.get(&kind).map_or(0.0, |it| it.share);
            answers.row(name, kinds.map(|kind| Cell::percent(Some(share(kind)))));
            let work = simulated.redundancy;
            let (shed, failed, retries) = (work.shed, work.failed, simulated.retries);
            let counts = [
                work.issued,
                work.won,
                work.wasted,
                shed,
                failed,
                work.unrecoverable,
                retries,
            ];
            let counts = counts
                .map(|count| Cell::from(count.to_string()))
                .into_iter();
            redundancy.row(name, counts.chain([Cell::from(ms(simulated.hold_back_ms))]));
            for pool in &simulated.pools {
                let cells = [
                    Cell::from(pool.role.clone()),
                    Cell::from(pool.instances.to_string()),
                    Cell::percent(Some(pool.utilisation)),
                    Cell::from(format!("{:.2}", pool.mean_queue)),
                    Cell::from(pool.max_queue.to_string()),
                ];
                pools.row(name, cells);
            }
        }
        page.table("Latency, all queries", latencies, "");
        page.table("Answers", answers, "");
        page.table("Redundant requests", redundancy, "");
        page.table("Pools", pools, "");
        page.fmt(out)
    }
}
