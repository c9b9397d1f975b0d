//! Experiments with real frontends, one for each strategy: started on this machine over the same
//! instances, or given.
//!
//! Only one frontend has load at a time: blocks alternate (A B C A B C ...), so that whatever the
//! machine does meanwhile happens to all. Block `i` of every strategy has the same planned times
//! and rows.

mod counters;
mod error;
mod events;
mod frontend;
mod host;
mod limits;
mod processes;
mod strategy_run;

pub use error::ClusterError;
pub use processes::{Places, ProcessError};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parapet_open_inference::ModelMetadata;
use parking_lot::Mutex;

use self::events::Actor;
use self::host::HostWatch;
use self::processes::Fleet;
use self::strategy_run::StrategyRun;
use crate::compare::{Block, Comparison, FaultMark, HostStalls, Settings};
use crate::experiment::{Event, Experiment, Instances};
use crate::payload::{Bodies, RequestOptions, Rows};
use crate::report::LagReport;
use crate::run::{KernelPacer, Plan, Progress, Recording, Stop, run};
use crate::schedule::{Length, Schedule};

/// One block in so many may be measured again because the machine stood still.
const STALL_REPEATS_SHARE: usize = 3;
/// The warm-up's schedule has a seed of its own.
const WARM_UP_SEED: u64 = u64::MAX;

/// Event of a comparison, for a display.
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
        progress: Arc<Progress>,
    },
    /// A block is measured again, for a reason that has nothing to do with its figures.
    Repeats {
        /// The strategy's place in the experiment.
        strategy: usize,
        /// The block, from 0.
        block: usize,
        /// The machine stood still for so long; otherwise the generator was late.
        stalls: Option<HostStalls>,
    },
    /// A block has ended.
    Ended {
        /// The strategy's place in the experiment.
        strategy: usize,
        /// The block, from 0.
        block: usize,
        recording: &'a Recording,
    },
}

/// Runs `experiment` with rows of `rows`; `places` are needed where processes are to be started.
/// When `stop` is asked for, what there is comes back, its last block partial.
///
/// # Errors
/// [`ClusterError`]; the processes are ended in any case.
pub async fn compare(
    experiment: &Experiment,
    places: Option<&Places>,
    rows: &Rows,
    files: (String, Option<String>),
    stop: &Stop,
    mut observe: impl FnMut(Update<'_>),
) -> Result<Comparison, ClusterError> {
    let started = Instant::now();
    let fleet = match places {
        _ if !experiment.starts_processes() => None,
        Some(places) => Some(Fleet::start(experiment, places, |ready, of| {
            observe(Update::Starting(ready, of))
        })?),
        None => return Err(ClusterError::NoPlaces),
    };
    let mut lanes: Vec<StrategyRun> = Vec::with_capacity(experiment.strategies.len());
    let mut metadata: Option<ModelMetadata> = None;
    for strategy in &experiment.strategies {
        let (strategy_run, of_model) = match (&strategy.url, &fleet, places) {
            (Some(url), ..) => StrategyRun::given(experiment, strategy, url).await?,
            (None, Some(fleet), Some(places)) => {
                StrategyRun::start(experiment, strategy, fleet, places).await?
            }
            (None, ..) => return Err(ClusterError::NoPlaces),
        };
        if let Some(metadata) = &metadata
            && metadata.inputs != of_model.inputs
        {
            return Err(ClusterError::Inputs {
                strategy: strategy.name.clone(),
                first: experiment.strategies[0].name.clone(),
            });
        }
        metadata.get_or_insert(of_model);
        lanes.push(strategy_run);
    }
    let fleet = fleet.map(|fleet| Arc::new(Mutex::new(fleet)));
    let settings = settings(experiment, &lanes, files);
    let Some(metadata) = metadata else {
        // No strategies: the experiment's check refuses that.
        return Ok(Comparison {
            settings,
            strategies: vec![],
            faults: vec![],
        });
    };
    let plan = |requests: usize, number: u64| -> Result<Plan, ClusterError> {
        let seed = experiment
            .seed
            .wrapping_mul(0x9e37_79b9)
            .wrapping_add(number);
        let schedule = Schedule::plan(
            experiment.arrivals,
            experiment.rate,
            Length::Requests(requests),
            seed,
        )?;
        let options = RequestOptions {
            encoding: experiment.encoding,
            allow_approximate: None,
            deadline: None,
        };
        let bodies = Bodies::encode(rows, &metadata, options, schedule.len(), seed)?;
        let timeout = Duration::from_millis(experiment.timeout_ms);
        Ok(Plan {
            schedule: Arc::new(schedule),
            bodies: Arc::new(bodies),
            timeout,
        })
    };
    if experiment.warm_up > 0 {
        let plan = plan(experiment.warm_up, WARM_UP_SEED)?;
        for (index, strategy_run) in lanes.iter().enumerate() {
            strategy_run.settle(places).await?;
            let progress = Arc::new(Progress::new(&plan.schedule));
            observe(Update::Begins {
                strategy: index,
                block: None,
                progress: Arc::clone(&progress),
            });
            run(
                &plan,
                Arc::clone(&strategy_run.transport),
                KernelPacer,
                progress,
                stop,
            )
            .await?;
        }
    }
    for strategy_run in &mut lanes {
        strategy_run.begin().await?;
    }
    let mut faults: Vec<FaultMark> = Vec::new();
    let watch = HostWatch::start()?;
    // On a machine that stands still all the time, the comparison ends nevertheless.
    let mut for_stalls = (experiment.blocks * lanes.len()).div_ceil(STALL_REPEATS_SHARE);
    'blocks: for (block, requests) in experiment.block_requests().into_iter().enumerate() {
        let plan = plan(requests, block as u64)?;
        let events: Vec<Event> = experiment
            .events
            .iter()
            .filter(|event| event.block == block)
            .copied()
            .collect();
        for (index, strategy_run) in lanes.iter_mut().enumerate() {
            // What is done to instances is not done twice.
            let mut repeats = if events.is_empty() {
                experiment.repeats
            } else {
                0
            };
            if stop.sending.is_cancelled() || stop.waiting.is_cancelled() {
                break 'blocks;
            }
            let ended = loop {
                strategy_run.settle(places).await?;
                let counted = strategy_run.counted().await?;
                let progress = Arc::new(Progress::new(&plan.schedule));
                let begun = Arc::clone(&progress);
                observe(Update::Begins {
                    strategy: index,
                    block: Some(block),
                    progress: begun,
                });
                let started_s = started.elapsed().as_secs_f64();
                let actor = match &fleet {
                    Some(fleet) => {
                        let name = strategy_run.measured.name.clone();
                        Some(Actor::start(
                            Arc::clone(fleet),
                            events.clone(),
                            started_s,
                            name,
                        )?)
                    }
                    None => None,
                };
                let mark = watch.mark();
                let recording = run(
                    &plan,
                    Arc::clone(&strategy_run.transport),
                    KernelPacer,
                    progress,
                    stop,
                )
                .await?;
                let stalls = watch.since(&mark);
                if let Some(actor) = actor {
                    let acted = tokio::task::spawn_blocking(|| actor.finish()).await;
                    faults.extend(acted.unwrap_or_else(|_| Ok(Vec::new()))?);
                }
                let valid = LagReport::of(&recording).is_valid();
                // After Ctrl-C nothing more is sent, and a repeated block would be partial.
                let stopped = stop.sending.is_cancelled() || stop.waiting.is_cancelled();
                let block_of = Block {
                    started_s,
                    recording,
                    valid,
                    stalls,
                };
                let disturbed = block_of.is_disturbed() && for_stalls > 0;
                if (valid && !disturbed) || block_of.recording.partial || repeats == 0 || stopped {
                    break block_of;
                }
                repeats -= 1;
                for_stalls -= usize::from(disturbed);
                strategy_run.forget_block(counted, disturbed).await?;
                let stalls = stalls.filter(|_| disturbed);
                observe(Update::Repeats {
                    strategy: index,
                    block,
                    stalls,
                });
            };
            observe(Update::Ended {
                strategy: index,
                block,
                recording: &ended.recording,
            });
            strategy_run.measured.blocks.push(ended);
        }
    }
    let mut strategies = Vec::with_capacity(lanes.len());
    for strategy_run in lanes {
        strategies.push(strategy_run.finish().await?);
    }
    Ok(Comparison {
        settings,
        strategies,
        faults,
    })
}

fn settings(
    experiment: &Experiment,
    lanes: &[StrategyRun],
    (images, labels): (String, Option<String>),
) -> Settings {
    let mut notes = BTreeMap::new();
    if experiment.starts_processes() {
        let Instances {
            deployed,
            redundant,
            slots,
        } = experiment.instances;
        notes.insert(
            "cluster".to_owned(),
            format!(
                "{deployed} + {redundant} instances on one machine, {slots} requests at a time each"
            ),
        );
        notes.insert("faults".to_owned(), faults(experiment));
    }
    let given = experiment.strategies.iter().zip(lanes);
    let given = given.filter_map(|(strategy, strategy_run)| {
        let silent = if strategy_run.has_metrics() {
            ""
        } else {
            " (no metrics)"
        };
        Some(format!(
            "{} at {}{silent}",
            strategy.name,
            strategy.url.as_ref()?
        ))
    });
    let given: Vec<String> = given.collect();
    if !given.is_empty() {
        notes.insert("frontends that ran already".to_owned(), given.join(", "));
    }
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
    text.unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
