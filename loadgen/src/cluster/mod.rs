//! Experiments with real processes on this machine: instances, one frontend for each strategy, load in turns.
//!
//! Each strategy has a frontend of its own over the same instances, and only one frontend has load at a time: blocks
//! alternate (A B C A B C ...), so that whatever the machine does meanwhile happens to all. Block `i` of every strategy
//! has the same planned times and rows.

mod counters;
mod events;
mod experiment;
mod frontend;
mod processes;

pub use experiment::{Event, Experiment, ExperimentError, Instances, Strategy, What};
pub use processes::{Places, ProcessError};

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::events::Actor;
use self::processes::{Fleet, Process};
use crate::compare::{Block, Comparison, FaultMark, Measured, Redundancy, Settings};
use crate::payload::{Bodies, BodiesError, RequestOptions, Rows};
use crate::report::LagReport;
use crate::run::{Plan, Progress, Recording, Stop, ThreadPacer, run};
use crate::schedule::{Length, Schedule, ScheduleError};
use crate::target::{HttpTransport, TargetError, TargetUrl};

/// How long everything may take to be up before a block.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);
const SETTLE_PERIOD: Duration = Duration::from_millis(50);
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// The warm-up's schedule has a seed of its own.
const WARM_UP_SEED: u64 = u64::MAX;

/// Why an experiment could not be run; one line.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The load.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The rows do not fit the model.
    #[error(transparent)]
    Bodies(#[from] BodiesError),
    /// A frontend does not answer.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Instances stay down.
    #[error("strategy {strategy}: not all of its instances came up within {} s; see the logs in {logs}", SETTLE_LIMIT.as_secs())]
    NotReady {
        /// The strategy.
        strategy: String,
        /// Where the logs are.
        logs: String,
    },
    /// No thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What is going on, for a display.
#[derive(Debug)]
pub enum Update<'a> {
    /// So many of so many instances run.
    Starting(usize, usize),
    /// A block begins; its progress can be looked at from any thread.
    Begins {
        /// The strategy's place in the experiment.
        strategy: usize,
        /// The block, from 0; `None` for the warm-up.
        block: Option<usize>,
        /// Its progress.
        progress: Arc<Progress>,
    },
    /// A block has ended.
    Ended {
        /// The strategy's place in the experiment.
        strategy: usize,
        /// The block, from 0.
        block: usize,
        /// What was measured.
        recording: &'a Recording,
    },
}

struct Lane {
    process: Process,
    address: SocketAddr,
    transport: Arc<HttpTransport>,
    before: Redundancy,
    measured: Measured,
}

/// Runs `experiment` with rows of `rows`. When `stop` is asked for, what there is comes back, its last block partial.
///
/// # Errors
/// [`ClusterError`]; the processes are ended in any case.
pub async fn compare(
    experiment: &Experiment,
    places: &Places,
    rows: &Rows,
    files: (String, Option<String>),
    stop: &Stop,
    mut observe: impl FnMut(Update<'_>),
) -> Result<Comparison, ClusterError> {
    let started = Instant::now();
    let fleet = Fleet::start(experiment, places, |ready, of| observe(Update::Starting(ready, of)))?;
    let addresses = fleet.addresses();
    let mut lanes = Vec::with_capacity(experiment.strategies.len());
    let mut metadata = None;
    for strategy in &experiment.strategies {
        let configuration = frontend::configuration(experiment, strategy, &places.repository, &addresses);
        let process = fleet.frontend(&strategy.name, &configuration)?;
        let target: TargetUrl = format!("http://{}", process.address).parse()?;
        let (address, of_model) = target.metadata(&experiment.model, ASK_LIMIT).await?;
        metadata.get_or_insert(of_model);
        let transport = Arc::new(HttpTransport::new(&target, address, &experiment.model)?);
        let measured = Measured {
            name: strategy.name.clone(),
            description: strategy.description.clone(),
            instances: experiment.instances_used(strategy),
            blocks: Vec::new(),
            redundancy: Redundancy::default(),
        };
        lanes.push(Lane { process, address, transport, before: Redundancy::default(), measured });
    }
    let fleet = Arc::new(Mutex::new(fleet));
    let Some(metadata) = metadata else {
        // No strategies: the experiment's check refuses that.
        return Ok(Comparison { settings: settings(experiment, files), strategies: vec![], faults: vec![] });
    };
    let plan = |requests: usize, number: u64| -> Result<Plan, ClusterError> {
        let seed = experiment.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number);
        let schedule =
            Schedule::plan(experiment.arrivals, experiment.rate, Length::Requests(requests), seed)?;
        let options =
            RequestOptions { encoding: experiment.encoding, allow_approximate: None, deadline: None };
        let bodies = Bodies::encode(rows, &metadata, options, schedule.len(), seed)?;
        let timeout = Duration::from_millis(experiment.timeout_ms);
        Ok(Plan { schedule: Arc::new(schedule), bodies: Arc::new(bodies), timeout })
    };
    if experiment.warm_up > 0 {
        let plan = plan(experiment.warm_up, WARM_UP_SEED)?;
        for (index, lane) in lanes.iter().enumerate() {
            settle(lane, places).await?;
            let progress = Arc::new(Progress::new(&plan.schedule));
            observe(Update::Begins { strategy: index, block: None, progress: Arc::clone(&progress) });
            run(&plan, Arc::clone(&lane.transport), ThreadPacer, progress, stop).await?;
        }
    }
    for lane in &mut lanes {
        lane.before = counters::redundancy(&scrape(lane).await?);
    }
    let mut faults: Vec<FaultMark> = Vec::new();
    'blocks: for (block, requests) in experiment.block_requests().into_iter().enumerate() {
        let plan = plan(requests, block as u64)?;
        for (index, lane) in lanes.iter_mut().enumerate() {
            if stop.sending.is_cancelled() || stop.waiting.is_cancelled() {
                break 'blocks;
            }
            settle(lane, places).await?;
            let progress = Arc::new(Progress::new(&plan.schedule));
            observe(Update::Begins { strategy: index, block: Some(block), progress: Arc::clone(&progress) });
            let started_s = started.elapsed().as_secs_f64();
            let events: Vec<Event> =
                experiment.events.iter().filter(|event| event.block == block).copied().collect();
            let actor = Actor::start(Arc::clone(&fleet), events, started_s, lane.measured.name.clone())?;
            let recording = run(&plan, Arc::clone(&lane.transport), ThreadPacer, progress, stop).await?;
            faults.extend(
                tokio::task::spawn_blocking(|| actor.finish()).await.unwrap_or_else(|_| Ok(Vec::new()))?,
            );
            observe(Update::Ended { strategy: index, block, recording: &recording });
            let valid = LagReport::of(&recording).is_valid();
            lane.measured.blocks.push(Block { started_s, recording, valid });
        }
    }
    let mut strategies = Vec::with_capacity(lanes.len());
    for mut lane in lanes {
        let after = counters::redundancy(&scrape(&lane).await?);
        lane.measured.redundancy = counters::difference(&lane.before, &after);
        strategies.push(lane.measured);
    }
    Ok(Comparison { settings: settings(experiment, files), strategies, faults })
}

fn settings(experiment: &Experiment, (images, labels): (String, Option<String>)) -> Settings {
    let Instances { deployed, redundant, slots } = experiment.instances;
    let mut notes = BTreeMap::new();
    notes.insert(
        "cluster".to_owned(),
        format!("{deployed} + {redundant} instances on one machine, {slots} requests at a time each"),
    );
    notes.insert("faults".to_owned(), faults(experiment));
    Settings {
        model: experiment.model.clone(),
        seed: experiment.seed,
        arrivals: experiment.arrivals,
        rate: experiment.rate,
        blocks: experiment.blocks,
        block_s: experiment.requests as f64 / experiment.rate / experiment.blocks as f64,
        timeout_ms: experiment.timeout_ms,
        encoding: experiment.encoding,
        deadline_ms: None,
        images,
        labels,
        notes,
    }
}

/// The fault profile in one line.
fn faults(experiment: &Experiment) -> String {
    let text = toml::Value::try_from(&experiment.faults).map(|value| value.to_string());
    text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn scrape(lane: &Lane) -> Result<String, TargetError> {
    let target: TargetUrl = format!("http://{}", lane.process.address).parse()?;
    target.text(lane.address, "/metrics", ASK_LIMIT).await
}

/// Waits until the frontend finds all its instances up.
async fn settle(lane: &Lane, places: &Places) -> Result<(), ClusterError> {
    let until = Instant::now() + SETTLE_LIMIT;
    while !counters::all_up(&scrape(lane).await?) {
        if Instant::now() > until {
            return Err(ClusterError::NotReady {
                strategy: lane.measured.name.clone(),
                logs: places.work.display().to_string(),
            });
        }
        tokio::time::sleep(SETTLE_PERIOD).await;
    }
    Ok(())
}
