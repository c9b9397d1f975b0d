//! Experiments with real frontends, one for each strategy: started on this machine over the same
//! instances, or given.
//!
//! Only one frontend has load at a time: blocks alternate (A B C A B C ...), so that whatever the
//! machine does meanwhile happens to all. Block `i` of every strategy has the same planned times
//! and rows.

mod counters;
mod events;
mod frontend;
mod host;
mod processes;
mod strategy_run;

pub use processes::Places;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
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

/// Reason why a comparison could not be made; one line.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Input(anyhow::Error),
    #[error(transparent)]
    Run(#[from] anyhow::Error),
}

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
pub async fn compare(
    experiment: &Experiment,
    places: Option<&Places>,
    rows: &Rows,
    stop: &Stop,
    observe: impl FnMut(Update<'_>),
) -> Result<Comparison, ClusterError> {
    let mut cluster = MeasuredCluster::start(experiment, places, rows, stop, observe).await?;
    let settings = settings(experiment, &cluster.runs, rows.names());
    cluster.warm_up().await?;
    for strategy_run in &mut cluster.runs {
        strategy_run.begin().await?;
    }
    cluster.measure().await?;
    let mut strategies = Vec::with_capacity(cluster.runs.len());
    for strategy_run in cluster.runs {
        strategies.push(strategy_run.finish().await?);
    }
    Ok(Comparison {
        settings,
        strategies,
        faults: cluster.faults,
    })
}

/// Instances and frontends under way.
struct MeasuredCluster<'a, O> {
    experiment: &'a Experiment,
    places: Option<&'a Places>,
    rows: &'a Rows,
    stop: &'a Stop,
    observe: O,
    started: Instant,
    fleet: Option<Arc<Mutex<Fleet>>>,
    runs: Vec<StrategyRun>,
    metadata: ModelMetadata,
    faults: Vec<FaultMark>,
}

impl<'a, O: FnMut(Update<'_>)> MeasuredCluster<'a, O> {
    async fn start(
        experiment: &'a Experiment,
        places: Option<&'a Places>,
        rows: &'a Rows,
        stop: &'a Stop,
        mut observe: O,
    ) -> Result<Self, ClusterError> {
        let started = Instant::now();
        let started_here = if experiment.starts_processes() {
            let places = places.context(
                "no model repository for the instances; give it with --repository, or every \
                 strategy a url",
            );
            let places = places.map_err(ClusterError::Input)?;
            let report = |ready, of| observe(Update::Starting(ready, of));
            let fleet = Fleet::start(experiment, places, report).map_err(ClusterError::Input)?;
            Some((fleet, places))
        } else {
            None
        };
        let mut runs = Vec::with_capacity(experiment.strategies.len());
        let mut metadata: Option<ModelMetadata> = None;
        for strategy in &experiment.strategies {
            let name = &strategy.name;
            let of_strategy = |error| ClusterError::Input(anyhow!("strategy {name}: {error}"));
            let (strategy_run, of_model) = match (&strategy.url, &started_here) {
                (Some(url), _) => StrategyRun::given(experiment, strategy, url)
                    .await
                    .map_err(of_strategy)?,
                (None, Some((fleet, places))) => {
                    StrategyRun::start(experiment, strategy, fleet, places).await?
                }
                (None, None) => return Err(of_strategy(anyhow!("has no url"))),
            };
            let first = metadata.get_or_insert_with(|| of_model.clone());
            if first.inputs != of_model.inputs {
                let first = &experiment.strategies[0].name;
                return Err(of_strategy(anyhow!(
                    "its model takes other inputs than that of {first}; compare frontends of one \
                     model"
                )));
            }
            runs.push(strategy_run);
        }
        let metadata = metadata.context("no strategy to compare");
        Ok(Self {
            experiment,
            places,
            rows,
            stop,
            observe,
            started,
            fleet: started_here.map(|(fleet, _)| Arc::new(Mutex::new(fleet))),
            runs,
            metadata: metadata.map_err(ClusterError::Input)?,
            faults: Vec::new(),
        })
    }

    /// The requests of the block of that number, which are the same for every strategy.
    fn plan(&self, requests: usize, number: u64) -> Result<Plan, ClusterError> {
        let experiment = self.experiment;
        let seed = experiment
            .seed
            .wrapping_mul(0x9e37_79b9)
            .wrapping_add(number);
        let (arrivals, rate) = (experiment.arrivals, experiment.rate);
        let schedule = Schedule::plan(arrivals, rate, Length::Requests(requests), seed)
            .map_err(ClusterError::Input)?;
        let options = RequestOptions {
            encoding: experiment.encoding,
            allow_approximate: None,
            deadline: None,
        };
        let bodies = Bodies::encode(self.rows, &self.metadata, options, schedule.len(), seed);
        Ok(Plan {
            schedule: Arc::new(schedule),
            bodies: Arc::new(bodies.map_err(ClusterError::Input)?),
            timeout: Duration::from_millis(experiment.timeout_ms),
        })
    }

    /// Sends `plan` to a strategy's frontend; `block` is `None` in the warm-up.
    async fn send(
        &mut self,
        plan: &Plan,
        strategy: usize,
        block: Option<usize>,
    ) -> anyhow::Result<Recording> {
        let progress = Arc::new(Progress::new(&plan.schedule));
        (self.observe)(Update::Begins {
            strategy,
            block,
            progress: Arc::clone(&progress),
        });
        let transport = Arc::clone(&self.runs[strategy].transport);
        let sent = run(plan, transport, KernelPacer, progress, self.stop);
        sent.await.context("cannot pace requests")
    }

    async fn warm_up(&mut self) -> Result<(), ClusterError> {
        if self.experiment.warm_up == 0 {
            return Ok(());
        }
        let plan = self.plan(self.experiment.warm_up, WARM_UP_SEED)?;
        for strategy in 0..self.runs.len() {
            self.runs[strategy].settle(self.places).await?;
            self.send(&plan, strategy, None).await?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.sending.is_cancelled() || self.stop.waiting.is_cancelled()
    }

    async fn measure(&mut self) -> Result<(), ClusterError> {
        let experiment = self.experiment;
        let watch = HostWatch::start().context("cannot start a thread")?;
        // On a machine that stands still all the time, the comparison ends nevertheless.
        let mut for_stalls = (experiment.blocks * self.runs.len()).div_ceil(STALL_REPEATS_SHARE);
        for (block, requests) in experiment.block_requests().into_iter().enumerate() {
            let plan = self.plan(requests, block as u64)?;
            for strategy in 0..self.runs.len() {
                if self.is_stopped() {
                    return Ok(());
                }
                self.measure_block(&plan, strategy, block, &watch, &mut for_stalls)
                    .await?;
            }
        }
        Ok(())
    }

    /// Measures a block of a strategy, again while the generator was late or the machine stood
    /// still. `for_stalls` counts the repeats that are left for the latter.
    async fn measure_block(
        &mut self,
        plan: &Plan,
        strategy: usize,
        block: usize,
        watch: &HostWatch,
        for_stalls: &mut usize,
    ) -> anyhow::Result<()> {
        let events = self
            .experiment
            .events
            .iter()
            .filter(|event| event.block == block);
        let events: Vec<Event> = events.copied().collect();
        // Events are not repeated.
        let mut repeats = if events.is_empty() {
            self.experiment.repeats
        } else {
            0
        };
        let ended = loop {
            self.runs[strategy].settle(self.places).await?;
            let counted = self.runs[strategy].counted().await?;
            let measured = self
                .act_and_send(plan, strategy, block, &events, watch)
                .await?;
            let disturbed = measured.is_disturbed() && *for_stalls > 0;
            let good = measured.valid && !disturbed;
            // After Ctrl-C nothing more is sent, and a repeated block would be partial.
            if good || measured.recording.partial || repeats == 0 || self.is_stopped() {
                break measured;
            }
            repeats -= 1;
            *for_stalls -= usize::from(disturbed);
            self.runs[strategy].forget_block(counted, disturbed).await?;
            (self.observe)(Update::Repeats {
                strategy,
                block,
                stalls: measured.stalls.filter(|_| disturbed),
            });
        };
        (self.observe)(Update::Ended {
            strategy,
            block,
            recording: &ended.recording,
        });
        self.runs[strategy].measured.blocks.push(ended);
        Ok(())
    }

    async fn act_and_send(
        &mut self,
        plan: &Plan,
        strategy: usize,
        block: usize,
        events: &[Event],
        watch: &HostWatch,
    ) -> anyhow::Result<Block> {
        let started_s = self.started.elapsed().as_secs_f64();
        let actor = match &self.fleet {
            Some(fleet) => {
                let name = self.runs[strategy].measured.name.clone();
                let actor = Actor::start(Arc::clone(fleet), events.to_vec(), started_s, name);
                Some(actor.context("cannot start a thread")?)
            }
            None => None,
        };
        let mark = watch.mark();
        let recording = self.send(plan, strategy, Some(block)).await?;
        let stalls = watch.since(&mark);
        if let Some(actor) = actor {
            let acted = tokio::task::spawn_blocking(|| actor.finish()).await;
            self.faults
                .extend(acted.unwrap_or_else(|_| Ok(Vec::new()))?);
        }
        Ok(Block {
            started_s,
            valid: LagReport::of(&recording).is_valid(),
            recording,
            stalls,
        })
    }
}

fn settings(
    experiment: &Experiment,
    runs: &[StrategyRun],
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
    let given = experiment.strategies.iter().zip(runs);
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
