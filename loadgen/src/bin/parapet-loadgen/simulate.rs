//! `parapet-loadgen simulate`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{anyhow, bail, ensure};
use parapet_config::faults::{FaultProfile, ServiceTime, Straggling};
use parapet_loadgen::compare::{Bootstrap, CompareReport, analyse};
use parapet_loadgen::experiment::{Arm, EQUAL_RESOURCES, Experiment, Role, usual_baseline};
use parapet_loadgen::report::compare_page;
use parapet_loadgen::run::Stop;
use parapet_loadgen::schedule::Arrivals;
use parapet_loadgen::simulate::{
    MAX_RECORDS, SCHEMA, Simulated, Simulation, SimulationReport, Simulator, comparison,
    simulations,
};

use crate::files::ReportFiles;
use crate::live::{show_progress, stop_on_interrupt};
use crate::{Error, bad_input, finish, runtime};

const ENDING: &str = "ending: the report is partial";

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
    redundant_instances: Option<usize>,
    /// Mean queries/s
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Distribution of arrivals over time: constant or poisson [default: poisson]
    #[arg(long)]
    arrivals: Option<Arrivals>,
    /// Queries to simulate [default: 100000]
    #[arg(long)]
    queries: Option<usize>,
    /// Seed of everything [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Milliseconds within which each query must be answered [default: 1000]
    #[arg(long)]
    deadline_ms: Option<u64>,
    /// Service time of a batch, as constant:18, uniform:10:20, lognormal:18:0.2 or
    /// empirical:17:18:25
    #[arg(long, value_parser = parse_service_time)]
    service_time: Option<ServiceTime>,
    /// Stragglers, as PROBABILITY:MIN_MS:MAX_MS
    #[arg(long, value_parser = parse_straggle)]
    straggle: Option<Straggling>,
    /// Fault profile that instances act out, a TOML file as parapet-instance takes it
    #[arg(long)]
    faults: Option<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
}

fn parse_service_time(text: &str) -> anyhow::Result<ServiceTime> {
    let form = "constant:MS, uniform:MIN:MAX, lognormal:MEDIAN:SIGMA or empirical:MS:MS:...";
    let (kind, times) = text.split_once(':').unwrap_or((text, ""));
    let values_ms = list("service time", text, times, form)?;
    Ok(match (kind, values_ms.as_slice()) {
        ("constant", &[ms]) => ServiceTime::Constant { ms },
        ("uniform", &[min_ms, max_ms]) => ServiceTime::Uniform { min_ms, max_ms },
        ("lognormal", &[median_ms, sigma]) => ServiceTime::Lognormal { median_ms, sigma },
        ("empirical", _) => ServiceTime::Empirical { values_ms },
        _ => bail!(
            "service time {text:?}: not a distribution with so many numbers; write it as {form}"
        ),
    })
}

/// Stragglers, as `0.01:15:45`: with that probability a batch takes so many milliseconds more.
fn parse_straggle(text: &str) -> anyhow::Result<Straggling> {
    let form = "PROBABILITY:MIN_MS:MAX_MS";
    let values = list("straggle", text, text, form)?;
    let [probability, min_ms, max_ms] = values[..] else {
        let count = values.len();
        bail!("straggle {text:?}: {count} numbers in place of 3; write it as {form}");
    };
    Ok(Straggling { probability, min_ms, max_ms })
}

fn list(what: &str, text: &str, part: &str, form: &str) -> anyhow::Result<Vec<f64>> {
    let number = |number: &str| {
        let wrong = |_| anyhow!("{what} {text:?}: {number:?} is no number; write it as {form}");
        number.parse().map_err(wrong)
    };
    part.split(':').map(number).collect()
}

impl Args {
    /// The experiment of the file, with what flags say in place of what it says.
    fn experiment(&self) -> anyhow::Result<Experiment> {
        let mut experiment = match &self.experiment {
            Some(path) => Experiment::read(path)?,
            None => Experiment {
                model: Role::Deployed.model().to_owned(),
                requests: 100_000,
                blocks: 20,
                timeout_ms: 1000,
                strategies: vec!["coded".parse()?, EQUAL_RESOURCES.parse()?],
                ..Experiment::default()
            },
        };
        if !self.strategy.is_empty() {
            let asked = self.strategy.iter().map(|name| {
                let mut of_file = experiment.strategies.iter();
                of_file.find(|arm| arm.name == *name).cloned().map_or_else(|| name.parse(), Ok)
            });
            experiment.strategies = asked.collect::<anyhow::Result<Vec<Arm>>>()?;
        }
        override_fields!(experiment, self, rate, arrivals, seed);
        experiment.requests = self.queries.unwrap_or(experiment.requests);
        experiment.timeout_ms = self.deadline_ms.unwrap_or(experiment.timeout_ms);
        let instances = &mut experiment.instances;
        instances.deployed = self.instances.unwrap_or(instances.deployed);
        instances.redundant = self.redundant_instances.unwrap_or(instances.redundant);
        if let Some(path) = &self.faults {
            experiment.faults = FaultProfile::read(path)?;
        }
        let faults = &mut experiment.faults;
        faults.service_time = self.service_time.clone().or(faults.service_time.take());
        faults.straggle = self.straggle.or(faults.straggle);
        if !experiment.names().any(|name| name == experiment.baseline) {
            experiment.baseline = usual_baseline(experiment.names()).to_owned();
        }
        Ok(experiment)
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let (experiment, simulations) = prepare(args).map_err(bad_input)?;
    let (stop, runtime) = (Stop::default(), runtime(1)?);
    let _context = runtime.enter();
    let _interrupts = stop_on_interrupt(&stop, ENDING)?;
    let mut done: Vec<Simulated> = Vec::new();
    for simulation in simulations {
        if stop.sending.is_cancelled() {
            break;
        }
        done.push(simulate(simulation, &stop)?);
    }
    let report = report(experiment, done);
    let page = || report.comparison.as_ref().map(compare_page);
    finish(&report, args.files.write(&report, page), report.partial)
}

/// Simulates with progress, until a signal breaks it off.
fn simulate(simulation: Simulation, stop: &Stop) -> anyhow::Result<Simulated> {
    let (name, queries) = (simulation.name.clone(), simulation.experiment.requests);
    let progress = Arc::new(AtomicUsize::new(0));
    let shown = Arc::clone(&progress);
    let status = move || format!("{name}: simulated {}/{queries}", shown.load(Relaxed));
    let _shown = show_progress(status);
    Ok(Simulator::new(simulation)?.run(|sent| {
        progress.store(sent, Relaxed);
        if stop.sending.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }))
}

fn prepare(args: &Args) -> anyhow::Result<(Experiment, Vec<Simulation>)> {
    args.files.check()?;
    let experiment = args.experiment()?;
    let mut simulations = simulations(&experiment)?;
    let count = simulations.len();
    let all = (experiment.requests as u64).saturating_mul(count as u64);
    let keep_records = all <= MAX_RECORDS && count > 1;
    ensure!(
        args.files.html.is_none() || keep_records,
        "--html compares at least two strategies, of at most {MAX_RECORDS} queries together, and \
         {all} of {count} were asked for; leave it out, or change --strategy or --queries"
    );
    for simulation in &mut simulations {
        simulation.keep_records = keep_records;
    }
    Ok((experiment, simulations))
}

fn report(settings: Experiment, strategies: Vec<Simulated>) -> SimulationReport {
    let unfinished = strategies.iter().any(|strategy| strategy.partial);
    SimulationReport {
        schema: SCHEMA.to_owned(),
        partial: strategies.len() < settings.strategies.len() || unfinished,
        comparison: compare(&settings, &strategies),
        settings,
        strategies,
    }
}

fn compare(experiment: &Experiment, done: &[Simulated]) -> Option<CompareReport> {
    if done.len() < 2 || done.iter().any(|simulated| simulated.recording.is_none()) {
        return None;
    }
    let comparison = comparison(experiment, done);
    let report = analyse(&comparison, &experiment.baseline, Bootstrap::default());
    report.inspect_err(|error| eprintln!("parapet-loadgen: no comparison: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_read() {
        let constant = ServiceTime::Constant { ms: 18.0 };
        assert_eq!(parse_service_time("constant:18").unwrap(), constant);
        let lognormal = ServiceTime::Lognormal { median_ms: 18.0, sigma: 0.2 };
        assert_eq!(parse_service_time("lognormal:18:0.2").unwrap(), lognormal);
        let straggle = parse_straggle("0.01:15:45").unwrap();
        let numbers = [straggle.probability, straggle.min_ms, straggle.max_ms];
        assert_eq!(numbers, [0.01, 15.0, 45.0]);
    }

    #[test]
    fn mistakes_are_named_on_one_line() {
        let service_time = |text| parse_service_time(text).unwrap_err();
        for (error, named) in [
            (service_time("18"), "\"\" is no number"),
            (service_time("constant:x"), "\"x\" is no number"),
            (service_time("gamma:1:2"), "not a distribution"),
            (parse_straggle("0.5:1").unwrap_err(), "2 numbers in place of 3"),
        ] {
            let line = error.to_string();
            assert!(line.contains(named) && line.contains("write it as"), "{line}");
        }
    }
}
