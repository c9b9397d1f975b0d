//! Experiments with real frontends, one a strategy: started here over the same instances, or given.
//!
//! Only one frontend has load at a time, and block `i` of every strategy has the same planned times
//! and rows ([`crate::compare`]).

mod events;
mod frontend;
mod processes;
mod strategy_run;

pub use processes::Places;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use parapet_open_inference::ModelMetadata;
use parking_lot::Mutex;

use self::events::Actor;
use self::processes::Fleet;
use self::strategy_run::StrategyRun;
use crate::compare::{Block, Comparison, FaultMark, Settings};
use crate::experiment::Experiment;
use crate::payload::{RequestOptions, Rows};
use crate::report::{LagReport, Summary};
use crate::run::{KernelPacer, Plan, Progress, Recording, Stop, run};
use crate::schedule::{Length, Schedule};

const WARM_UP_SEED: u64 = u64::MAX;

pub struct MeasuredCluster<'a> {
    experiment: &'a Experiment,
    rows: &'a Rows,
    stop: &'a Stop,
    log: fn(&str),
    started: Instant,
    fleet: Option<Arc<Mutex<Fleet>>>,
    runs: Vec<StrategyRun>,
    metadata: ModelMetadata,
    faults: Vec<FaultMark>,
}

impl<'a> MeasuredCluster<'a> {
    /// Starts what `experiment` needs, and asks the frontends for their model; `places` are needed
    /// where processes are to be started. `log` takes a line for each step.
    pub async fn start(
        experiment: &'a Experiment,
        places: Option<&Places>,
        rows: &'a Rows,
        stop: &'a Stop,
        log: fn(&str),
    ) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut fleet = None;
        if experiment.starts_processes() {
            let places = places.context(
                "no model repository for the instances; give it with --repository, or every \
                 strategy a url",
            )?;
            let started = Fleet::start(experiment, places)?;
            log(&format!("{} instances run", started.instances.len()));
            fleet = Some(started);
        }
        let mut runs = Vec::with_capacity(experiment.strategies.len());
        let mut metadata: Option<ModelMetadata> = None;
        for arm in &experiment.strategies {
            let of_arm = |error| anyhow!("strategy {}: {error:#}", arm.name);
            let (run, of_model) = match (&arm.url, &fleet) {
                (Some(url), _) => StrategyRun::given(experiment, arm, url).await,
                (None, Some(fleet)) => StrategyRun::start(experiment, arm, fleet).await,
                (None, None) => Err(anyhow!("has no url")),
            }
            .map_err(of_arm)?;
            let first = metadata.get_or_insert_with(|| of_model.clone());
            if first.inputs != of_model.inputs {
                let (name, first) = (&arm.name, &experiment.strategies[0].name);
                bail!(
                    "strategy {name}: its model takes other inputs than that of {first}; compare \
                     frontends of one model"
                );
            }
            runs.push(run);
        }
        let cluster = Self {
            experiment,
            rows,
            stop,
            log,
            started,
            fleet: fleet.map(|fleet| Arc::new(Mutex::new(fleet))),
            runs,
            metadata: metadata.context("no strategy to compare")?,
            faults: Vec::new(),
        };
        // Rows that do not fit the model are found before the first request.
        cluster.plan(1, 0)?;
        Ok(cluster)
    }

    /// Measures all blocks; what there is, its last block partial, when `stop` is asked for.
    pub async fn compare(mut self) -> anyhow::Result<Comparison> {
        let settings = self.settings();
        self.warm_up().await?;
        for run in &mut self.runs {
            run.begin().await?;
        }
        self.measure().await?;
        let mut strategies = Vec::with_capacity(self.runs.len());
        for run in self.runs {
            strategies.push(run.finish().await?);
        }
        Ok(Comparison { settings, strategies, faults: self.faults })
    }

    /// The requests of the block of that number, which are the same for every strategy.
    fn plan(&self, requests: usize, number: u64) -> anyhow::Result<Plan> {
        let experiment = self.experiment;
        let seed = experiment.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number);
        let (arrivals, rate) = (experiment.arrivals, experiment.rate);
        let schedule = Schedule::plan(arrivals, rate, Length::Requests(requests), seed)?;
        let options = RequestOptions {
            encoding: experiment.encoding,
            timeout_ms: experiment.timeout_ms,
            allow_approximate: None,
            deadline_ms: None,
        };
        Plan::encode(schedule, self.rows, &self.metadata, options, seed)
    }

    async fn send(&self, plan: &Plan, strategy: usize) -> anyhow::Result<Recording> {
        let progress = Arc::new(Progress::new(&plan.schedule));
        let transport = Arc::clone(&self.runs[strategy].transport);
        run(plan, transport, KernelPacer, progress, self.stop).await.context("cannot pace requests")
    }

    async fn warm_up(&self) -> anyhow::Result<()> {
        if self.experiment.warm_up == 0 {
            return Ok(());
        }
        let plan = self.plan(self.experiment.warm_up, WARM_UP_SEED)?;
        for strategy in 0..self.runs.len() {
            self.runs[strategy].settle().await?;
            (self.log)(&format!("warm-up  {}", self.runs[strategy].measured.name));
            self.send(&plan, strategy).await?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.sending.is_cancelled() || self.stop.waiting.is_cancelled()
    }

    async fn measure(&mut self) -> anyhow::Result<()> {
        for (block, requests) in self.experiment.block_requests().into_iter().enumerate() {
            let plan = self.plan(requests, block as u64)?;
            for strategy in 0..self.runs.len() {
                if self.is_stopped() {
                    return Ok(());
                }
                let measured = self.measure_block(&plan, strategy, block).await?;
                self.runs[strategy].measured.blocks.push(measured);
            }
        }
        Ok(())
    }

    /// Measures a block of a strategy, again while the generator was late.
    async fn measure_block(
        &mut self,
        plan: &Plan,
        strategy: usize,
        block: usize,
    ) -> anyhow::Result<Block> {
        let (blocks, name) = (self.experiment.blocks, &self.runs[strategy].measured.name);
        let place = format!("block {:>2}/{blocks}  {name:<24}", block + 1);
        // Events are not repeated.
        let events = self.experiment.events.iter().any(|event| event.block == block);
        let mut repeats = if events { 0 } else { self.experiment.repeats };
        loop {
            self.runs[strategy].settle().await?;
            let counted = self.runs[strategy].counted().await?;
            let measured = self.act_and_send(plan, strategy, block).await?;
            // After Ctrl-C nothing more is sent, and a repeated block would be partial.
            let last = measured.recording.partial || repeats == 0 || self.is_stopped();
            if measured.valid || last {
                (self.log)(&format!("{place} {}", latencies(&measured.recording)));
                return Ok(measured);
            }
            repeats -= 1;
            self.runs[strategy].forget_block(counted).await?;
            (self.log)(&format!("{place} the generator was late; once more"));
        }
    }

    async fn act_and_send(
        &mut self,
        plan: &Plan,
        strategy: usize,
        block: usize,
    ) -> anyhow::Result<Block> {
        let started_s = self.started.elapsed().as_secs_f64();
        let events = self.experiment.events.iter().copied().filter(|event| event.block == block);
        let name = &self.runs[strategy].measured.name;
        let actor = self.fleet.as_ref().map(|fleet| Actor::start(fleet, events, started_s, name));
        let recording = self.send(plan, strategy).await?;
        if let Some(actor) = actor {
            self.faults.extend(actor.finish().await?);
        }
        Ok(Block { started_s, valid: LagReport::of(&recording).is_valid(), recording })
    }

    fn settings(&self) -> Settings {
        let experiment = self.experiment;
        let mut notes = BTreeMap::new();
        if experiment.starts_processes() {
            let size = experiment.instances;
            let cluster = format!(
                "{} + {} instances on one machine, {} requests at a time each",
                size.deployed, size.redundant, size.slots
            );
            let faults = toml::Value::try_from(&experiment.faults);
            let faults = faults.map(|faults| faults.to_string()).unwrap_or_default();
            let faults: Vec<&str> = faults.split_whitespace().collect();
            notes.insert("cluster".to_owned(), cluster);
            notes.insert("faults".to_owned(), faults.join(" "));
        }
        let given = experiment.strategies.iter();
        let given = given.filter_map(|arm| Some(format!("{} at {}", arm.name, arm.url.as_ref()?)));
        let given: Vec<String> = given.collect();
        if !given.is_empty() {
            notes.insert("frontends that ran already".to_owned(), given.join(", "));
        }
        experiment.settings(self.rows.names.clone(), notes)
    }
}

fn latencies(recording: &Recording) -> String {
    let Some(latency) = Summary::of_answers(&recording.records) else {
        return "no answer".to_owned();
    };
    let (p50, p99, p99_9) = (latency.p50, latency.p99, latency.p99_9);
    format!("p50 {p50:>7.2}  p99 {p99:>7.2}  p99.9 {p99_9:>7.2} ms")
}
