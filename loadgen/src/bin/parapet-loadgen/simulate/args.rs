//! The arguments of `parapet-loadgen simulate`, and the setup that follows from them.

use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::ArgAction;
use parapet_config::faults::FaultProfile;
use parapet_loadgen::experiment::{
    Experiment, parse_freeze, parse_service_time, parse_slowdown, parse_span, parse_straggle,
    usual_baseline,
};
use parapet_loadgen::schedule::Arrivals;
use parapet_loadgen::simulate::{Crashes, Delay, Setup};

use crate::files::{Recordings, ReportFiles};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The experiment, a TOML file as compare takes it; flags win over it
    #[arg(long)]
    experiment: Option<PathBuf>,
    /// Strategies, separated by commas: none, equal_resources, replicate, hedge,
    /// approximate_backup, coded, coded_hedged; with settings of the configuration as
    /// coded:k=3:hold_back.fixed_ms=22 [default: coded,equal_resources]
    #[arg(long, value_delimiter = ',')]
    strategy: Vec<String>,
    /// Instances of the deployed model without redundancy
    #[arg(long)]
    instances: Option<usize>,
    /// Instances on top for redundancy; every strategy but none has them [default: 0]
    #[arg(long)]
    pub(crate) redundant_instances: Option<usize>,
    /// Requests that the frontend gives an instance at a time [default: 1]
    #[arg(long)]
    slots: Option<u32>,
    /// Mean queries/s
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Distribution of arrivals over time: constant or poisson [default: poisson]
    #[arg(long)]
    arrivals: Option<Arrivals>,
    /// Queries to simulate [default: 100000]
    #[arg(long)]
    queries: Option<u64>,
    /// Seed of everything [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Milliseconds within which each query must be answered [default: 1000]
    #[arg(long, allow_negative_numbers = true)]
    deadline_ms: Option<f64>,
    /// True if clients take approximate answers [default: true]
    #[arg(long, action = ArgAction::Set)]
    allow_approximate: Option<bool>,
    /// Service time of a batch, as constant:18, uniform:10:20, lognormal:18:0.2 or
    /// empirical:17:18:25
    #[arg(long, allow_hyphen_values = true)]
    service_time: Option<String>,
    /// The same for the backup model
    #[arg(long)]
    backup_service_time: Option<String>,
    /// Stragglers, as PROBABILITY:MIN_MS:MAX_MS
    #[arg(long, allow_hyphen_values = true)]
    straggle: Option<String>,
    #[arg(
        long,
        help = "Slow periods, as SHARE:(own|correlated):MEAN_INTERVAL_MS:MIN_LENGTH_MS:\
                MAX_LENGTH_MS:MIN_ADDED_MS:MAX_ADDED_MS"
    )]
    slowdown: Option<String>,
    /// Freezes, as MEAN_INTERVAL_MS:MIN_MS:MAX_MS
    #[arg(long)]
    freeze: Option<String>,
    /// Fault profile that instances act out, a TOML file as parapet-instance takes it
    #[arg(long)]
    faults: Option<PathBuf>,
    /// Processes that end and come back, as MEAN_INTERVAL_MS:MIN_AWAY_MS:MAX_AWAY_MS
    #[arg(long)]
    crash: Option<String>,
    /// Delay to an instance and again back, as CONSTANT_MS or CONSTANT_MS:MEAN_EXPONENTIAL_MS
    #[arg(long, allow_hyphen_values = true)]
    network: Option<String>,
    /// Queries in a coding group [default: 2]
    #[arg(short, long)]
    k: Option<usize>,
    /// Parity rows [default: 1]
    #[arg(short, long)]
    r: Option<usize>,
    #[command(flatten)]
    pub(crate) files: ReportFiles,
    /// Write the comparison of the strategies as JSON, as real comparisons have it
    #[arg(long)]
    pub(crate) compare_json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) recordings: Recordings,
    /// Strategy that the others are compared with [default: the experiment's, equal_resources, or
    /// the first]
    #[arg(long)]
    pub(crate) baseline: Option<String>,
}

fn parse_crashes(text: &str) -> anyhow::Result<Crashes> {
    let (mean_interval_ms, away) = parse_span("crash", text)?;
    Ok(Crashes {
        mean_interval_ms,
        away,
    })
}

fn parse_delay(text: &str) -> anyhow::Result<Delay> {
    let number = |part: &str| {
        let ms = part.parse::<f64>().ok().filter(|ms| *ms >= 0.0);
        ms.ok_or_else(|| {
            anyhow!(
                "network {text:?}: {part:?} is no time; write CONSTANT_MS or \
                    CONSTANT_MS:MEAN_EXPONENTIAL_MS, as 0.1:0.05"
            )
        })
    };
    let (constant, exponential) = text.split_once(':').unwrap_or((text, "0"));
    Ok(Delay {
        constant_ms: number(constant)?,
        exponential_ms: number(exponential)?,
    })
}

impl Args {
    /// The experiment of the file, with what flags say in place of what it says; and which of its
    /// fields are not simulated.
    pub(crate) fn setup(&self) -> anyhow::Result<(Setup, Vec<String>)> {
        let (mut setup, ignored) = match &self.experiment {
            Some(path) => {
                let mut experiment = Experiment::read(path)?;
                // The seed of faults is made of it.
                experiment.seed = self.seed.unwrap_or(experiment.seed);
                Setup::of_experiment(&experiment, path)?
            }
            None => (Setup::default(), Vec::new()),
        };
        if !self.strategy.is_empty() {
            let of_file = |name: &String| {
                setup
                    .strategies
                    .iter()
                    .find(|strategy| strategy.name == *name)
            };
            let asked =
                |name: &String| of_file(name).map_or_else(|| name.parse(), |arm| Ok(arm.clone()));
            let asked: anyhow::Result<_> = self.strategy.iter().map(asked).collect();
            setup.strategies = asked?;
        }
        macro_rules! take {
            ($($flag:ident => $field:ident),* $(,)?) => {$(
                if let Some(value) = self.$flag {
                    setup.$field = value;
                }
            )*};
        }
        take!(
            instances => instances, redundant_instances => redundant_instances, slots => slots,
                rate => rate,
            arrivals => arrivals, queries => queries, seed => seed, deadline_ms => deadline_ms,
        );
        self.k.into_iter().for_each(|k| setup.set_k(k));
        self.r.into_iter().for_each(|r| setup.set_r(r));
        let around = &mut setup.surroundings;
        around.allow_approximate = self.allow_approximate.unwrap_or(around.allow_approximate);
        around.crashes = optional(&self.crash, parse_crashes)?.or(around.crashes);
        if let Some(delay) = optional(&self.network, parse_delay)? {
            (around.network.to_instance, around.network.to_frontend) = (delay, delay);
        }
        setup.faults = Some(self.fault_profile(&setup)?);
        self.set_baseline(&mut setup)?;
        Ok((setup, ignored))
    }

    /// The one that was asked for, or the file's, or the usual one.
    fn set_baseline(&self, setup: &mut Setup) -> anyhow::Result<()> {
        let names = || {
            setup
                .strategies
                .iter()
                .map(|strategy| strategy.name.as_str())
        };
        let known = |baseline: &&String| names().any(|name| name == *baseline);
        if let Some(asked) = &self.baseline {
            ensure!(
                known(&asked),
                "baseline {asked:?} is not among the strategies; name one of them"
            );
        }
        let given = self.baseline.as_ref().or(setup.baseline.as_ref());
        let usual = || usual_baseline(names()).to_owned();
        setup.baseline = Some(given.filter(known).cloned().unwrap_or_else(usual));
        Ok(())
    }

    fn fault_profile(&self, setup: &Setup) -> anyhow::Result<FaultProfile> {
        let mut faults = match (&self.faults, &setup.faults) {
            (Some(path), _) => FaultProfile::read(path)?,
            (None, Some(faults)) => faults.clone(),
            (None, None) => FaultProfile {
                seed: setup.seed,
                ..FaultProfile::default()
            },
        };
        faults.service_time =
            optional(&self.service_time, parse_service_time)?.or(faults.service_time);
        faults.straggle = optional(&self.straggle, parse_straggle)?.or(faults.straggle);
        faults.slowdown = optional(&self.slowdown, parse_slowdown)?.or(faults.slowdown);
        faults.freeze = optional(&self.freeze, parse_freeze)?.or(faults.freeze);
        if let Some(time) = optional(&self.backup_service_time, parse_service_time)? {
            faults.model_service_time.insert("backup".to_owned(), time);
        }
        Ok(faults)
    }
}

/// Read here and not by clap, whose complaints take several lines.
fn optional<T>(
    text: &Option<String>,
    parse: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    text.as_deref().map(parse).transpose()
}
