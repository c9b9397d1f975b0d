//! A simulation's report, for programs and for people, and the comparison that real runs make, too.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::{Block, CompareReport, Comparison, FaultMark, Measured, Redundancy, Settings};
use crate::experiment::{Event, Experiment};
use crate::report::page::{Cell, Page, Table, ms};
use crate::report::{Counts, Latency, Summary};
use crate::run::{Record, Recording};
use crate::target::Provenance;

pub const SCHEMA: &str = "parapet-loadgen/simulation/4";

const KINDS: [Provenance; 4] =
    [Provenance::Exact, Provenance::Hedged, Provenance::Backup, Provenance::Reconstructed];

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
        let mut pools = Table::new(["", "serves", "instances", "busy", "mean queue", "max queue"]);
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
            let sent = [work.issued, work.won, work.wasted, work.shed, work.failed];
            let rest = [work.unrecoverable, strategy.retries].map(Cell::count);
            let late = Cell::from(ms(strategy.hold_back_ms));
            redundancy.row(name, sent.map(Cell::count).into_iter().chain(rest).chain([late]));
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

/// Queries of all strategies together whose records may be kept: some 100 bytes each.
pub const MAX_RECORDS: u64 = 2_000_000;

/// The simulations of one [`Experiment`], as a comparison. Those without records are left out.
pub fn comparison(experiment: &Experiment, simulated: &[Simulated]) -> Comparison {
    let (block_s, size) = (experiment.block_s(), experiment.instances);
    let notes = [
        ("simulated", "virtual time; see the simulation's settings".to_owned()),
        ("instances", size.deployed.to_string()),
        ("redundant instances", size.redundant.to_string()),
    ];
    let notes = notes.map(|(name, value)| (name.to_owned(), value)).into();
    let settings = Settings {
        deadline_ms: Some(experiment.timeout_ms),
        ..experiment.settings(("none".to_owned(), None), notes)
    };
    let measured = |simulated: &Simulated| {
        Some(Measured {
            name: simulated.name.clone(),
            description: simulated.description.clone(),
            instances: Some(simulated.instances),
            blocks: blocks(simulated.recording.as_ref()?, experiment.blocks, block_s),
            redundancy: Some(simulated.redundancy),
            ..Measured::default()
        })
    };
    let mark = |event: &Event| {
        let [at_s, until_s] = event.span_s(block_s)?;
        Some(FaultMark {
            at_s,
            until_s: Some(until_s),
            what: event.what.to_string(),
            instance: format!("instance {}", event.instance),
            strategy: None,
        })
    };
    Comparison {
        settings,
        strategies: simulated.iter().filter_map(measured).collect(),
        faults: experiment.events.iter().filter_map(mark).collect(),
    }
}

/// Cuts a recording by planned time; what comes after the last block's end is part of it.
fn blocks(recording: &Recording, count: usize, block_s: f64) -> Vec<Block> {
    let place =
        |record: &Record| ((record.planned_us as f64 / 1e6 / block_s) as usize).min(count - 1);
    let mut rest = recording.records.as_slice();
    let mut blocks = Vec::new();
    for number in 0..count {
        let (own, others) = rest.split_at(rest.partition_point(|record| place(record) <= number));
        rest = others;
        let started_s = number as f64 * block_s;
        let start_us = (started_s * 1e6) as u64;
        let shifted = |record: &Record| record.shifted(|at| at.saturating_sub(start_us));
        let records: Vec<Record> = own.iter().map(shifted).collect();
        let last = |time: fn(&Record) -> Option<u64>| {
            Duration::from_micros(records.iter().filter_map(time).max().unwrap_or_default())
        };
        let sending_ended = last(|record| record.sent_us);
        let ended = last(|record| record.done_us).max(sending_ended);
        // A simulation that was broken off has whole blocks up to the one in which it was.
        let is_last_of_partial = recording.partial && rest.is_empty();
        let partial = is_last_of_partial || records.iter().any(|record| record.outcome.is_none());
        blocks.push(Block {
            started_s,
            recording: Recording { records, sending_ended, ended, partial },
            valid: true,
        });
        if is_last_of_partial {
            break;
        }
    }
    blocks
}
