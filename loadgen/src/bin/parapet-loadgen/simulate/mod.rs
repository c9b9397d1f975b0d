//! `parapet-loadgen simulate`.

mod args;
mod watch;

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::ensure;
use parapet_loadgen::compare::{Bootstrap, CompareReport, analyse};
use parapet_loadgen::experiment::ResolvedArm;
use parapet_loadgen::report::compare_page;
use parapet_loadgen::simulate::{
    MAX_RECORDS, SCHEMA, Setup, Simulated, Simulation, SimulationReport, StrategyFigures,
    comparison,
};

pub(crate) use self::args::Args;
pub(crate) use self::watch::Watch;
use crate::files::{check_writable, write_json};
use crate::outcome::{Error, bad_input, finish};

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let (setup, simulations) = prepare(args).map_err(bad_input)?;
    let watch = Watch::new()?;
    let mut done: Vec<(ResolvedArm, Simulated)> = Vec::new();
    for (spec, simulation) in simulations {
        if watch.is_stopped() {
            break;
        }
        let simulated = watch.simulate(spec.label.clone(), simulation)?;
        done.push((spec, simulated));
    }
    drop(watch);
    let recorded = write_recordings(args, &done);
    let report = report(&setup, done);
    let written = recorded.and(write_files(args, &report));
    finish(&report, written, report.partial, &[])
}

/// Checks all that was given.
fn prepare(args: &Args) -> anyhow::Result<(Setup, Vec<(ResolvedArm, Simulation)>)> {
    args.files.check()?;
    if let Some(path) = &args.compare_json {
        check_writable(path)?;
    }
    let (setup, ignored) = args.setup()?;
    let mut simulations = setup.simulations()?;
    let all = setup.queries.saturating_mul(simulations.len() as u64);
    let keep_records = all <= MAX_RECORDS && (simulations.len() > 1 || !args.recordings.is_empty());
    args.recordings
        .check(simulations.iter().map(|(spec, _)| spec.label.as_str()))?;
    ensure!(
        args.recordings.is_empty() || keep_records,
        "--csv, --hgrm and --hlog hold at most {MAX_RECORDS} queries of all strategies together, \
            not {all}; leave them out, or lower --queries"
    );
    ensure!(
        (args.files.html.is_none() && args.compare_json.is_none())
            || (keep_records && simulations.len() > 1),
        "--html and --compare-json compare at least two strategies, of at most {MAX_RECORDS} \
            queries together, and {all} of {} were asked for; leave them out, or change \
            --strategy or --queries",
        simulations.len()
    );
    simulations
        .iter_mut()
        .for_each(|(_, simulation)| simulation.keep_records = keep_records);
    tell_ignored(&ignored);
    Ok((setup, simulations))
}

/// Says which fields of an experiment have no part in a simulation.
pub(crate) fn tell_ignored(ignored: &[String]) {
    if !ignored.is_empty() {
        eprintln!("parapet-loadgen: not simulated: {}", ignored.join(", "));
    }
}

fn report(setup: &Setup, done: Vec<(ResolvedArm, Simulated)>) -> SimulationReport {
    let comparison = compare(setup, &done);
    let figures = |(spec, simulated): (ResolvedArm, Simulated)| StrategyFigures {
        name: spec.label,
        instances: simulated.pools.iter().map(|pool| pool.instances).sum(),
        simulated: Simulated {
            recording: None,
            ..simulated
        },
    };
    let strategies: Vec<StrategyFigures> = done.into_iter().map(figures).collect();
    SimulationReport {
        schema: SCHEMA.to_owned(),
        partial: strategies.len() < setup.strategies.len()
            || strategies.iter().any(|strategy| strategy.simulated.partial),
        settings: setup.clone(),
        strategies,
        comparison,
    }
}

fn compare(setup: &Setup, done: &[(ResolvedArm, Simulated)]) -> Option<CompareReport> {
    let recorded = done.len() > 1
        && done
            .iter()
            .all(|(_, simulated)| simulated.recording.is_some());
    if !recorded {
        return None;
    }
    let baseline = setup.baseline.as_deref().unwrap_or_default();
    let comparison = comparison(setup, done);
    analyse(&comparison, baseline, Bootstrap::default())
        .inspect_err(|error| eprintln!("parapet-loadgen: no comparison: {error}"))
        .ok()
}

/// Virtual time has no date: it begins with 1970.
fn write_recordings(args: &Args, done: &[(ResolvedArm, Simulated)]) -> anyhow::Result<()> {
    let mut recorded = done
        .iter()
        .filter_map(|(spec, simulated)| Some((spec, simulated.recording.as_ref()?)));
    recorded.try_for_each(|(spec, recording)| {
        args.recordings
            .write(&spec.label, recording, SystemTime::UNIX_EPOCH)
    })
}

fn write_files(args: &Args, report: &SimulationReport) -> anyhow::Result<()> {
    let page = || report.comparison.as_ref().map(compare_page);
    args.files.write(report, page)?;
    if let (Some(path), Some(comparison)) = (&args.compare_json, &report.comparison) {
        write_json(path, comparison)?;
    }
    Ok(())
}
