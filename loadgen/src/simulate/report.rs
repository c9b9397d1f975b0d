//! A simulation's report, for programs and for people.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::{CompareReport, Redundancy};
use crate::experiment::Experiment;
use crate::report::page::{Cell, Page, Table, ms};
use crate::report::{Counts, Latency, Summary};
use crate::run::Recording;
use crate::target::Provenance;

pub const SCHEMA: &str = "parapet-loadgen/simulation/4";

/// Kinds of answers that instances can give.
const KINDS: [Provenance; 4] = [
    Provenance::Exact,
    Provenance::Hedged,
    Provenance::Backup,
    Provenance::Reconstructed,
];

/// The figures of all strategies of a [`Experiment`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulationReport {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub partial: bool,
    pub settings: Experiment,
    pub strategies: Vec<Simulated>,
    /// The comparison that real runs make, too; absent for one strategy, and where records of all
    /// queries would be too many.
    pub comparison: Option<CompareReport>,
}

/// A simulation's figures. Times are milliseconds of virtual time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Simulated {
    pub name: String,
    #[serde(skip)]
    pub description: String,
    pub instances: usize,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    pub count: u64,
    pub share: f64,
    pub latency: Summary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
        let (settings, instances) = (&self.settings, self.settings.instances);
        let mut page = Page::new(format!(
            "simulated: {} + {} instances, {} arrivals, {} queries/s, seed {}",
            instances.deployed,
            instances.redundant,
            settings.arrivals,
            settings.rate,
            settings.seed
        ));
        if self.partial {
            page.banner("PARTIAL", "the simulation was broken off");
        }
        let times = ["ms", "queries", "failed"].into_iter();
        let mut latencies = Table::new(times.chain(Summary::NAMES));
        let shares = KINDS.iter().map(Provenance::to_string);
        let mut answers = Table::new(std::iter::once("share".to_owned()).chain(shares));
        let work = "requests,issued,won,wasted,shed,failed,no remedy,retries,late at ms";
        let mut redundancy = Table::new(work.split(','));
        let columns = ["", "serves", "instances", "busy", "mean queue", "max queue"];
        let mut pools = Table::new(columns);
        for strategy in &self.strategies {
            let name = &strategy.name;
            if let Some(all) = strategy.latency.all {
                let counts = [all.count, strategy.counts.failed as u64].map(Cell::count);
                let times = all.figures().map(|(_, time)| Cell::from(ms(time)));
                latencies.row(name, counts.into_iter().chain(times));
            }
            let share = |kind| strategy.provenance.get(&kind).map_or(0.0, |it| it.share);
            answers.row(name, KINDS.map(|kind| Cell::percent(Some(share(kind)))));
            let work = strategy.redundancy;
            let counts = [work.issued, work.won, work.wasted, work.shed, work.failed];
            let counts = counts
                .into_iter()
                .chain([work.unrecoverable, strategy.retries]);
            let late = Cell::from(ms(strategy.hold_back_ms));
            redundancy.row(name, counts.map(Cell::count).chain([late]));
            for pool in &strategy.pools {
                let cells = [
                    Cell::from(pool.role.as_str()),
                    Cell::count(pool.instances),
                    Cell::percent(Some(pool.utilisation)),
                    Cell::from(format!("{:.2}", pool.mean_queue)),
                    Cell::count(pool.max_queue),
                ];
                pools.row(name, cells);
            }
        }
        for (title, table) in [
            ("Latency, all queries", latencies),
            ("Answers", answers),
            ("Redundant requests", redundancy),
            ("Pools", pools),
        ] {
            page.table(title, &table, "");
        }
        page.fmt(out)
    }
}
