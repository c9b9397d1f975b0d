//! `parapet-loadgen sweep`: many simulations, and where each strategy wins.

use std::process::ExitCode;

use anyhow::ensure;
use parapet_config::faults::Straggling;
use parapet_loadgen::compare::{Axes, Bootstrap, SweepPoint, SweepReport, analyse};
use parapet_loadgen::experiment::Experiment;
use parapet_loadgen::report::sweep_page;
use parapet_loadgen::simulate::{MAX_RECORDS, Simulated, comparison, simulations};

use crate::live::Watch;
use crate::simulate;
use crate::{Error, bad_input, finish};

// Named apart from the arguments that it includes, which clap would otherwise take for the same
// group.
#[derive(Debug, clap::Args)]
#[group(id = "sweep")]
pub(crate) struct Args {
    /// Rates to simulate, in queries/s
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    rates: Vec<f64>,
    /// Sizes of coding groups; the redundant instances become instances * r / k, unless they are
    /// given
    #[arg(long, value_delimiter = ',')]
    ks: Vec<usize>,
    /// Numbers of parity rows
    #[arg(long, value_delimiter = ',')]
    rs: Vec<usize>,
    /// Probabilities of stragglers
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true)]
    straggle_probabilities: Vec<f64>,
    #[command(flatten)]
    simulate: simulate::Args,
}

/// Name of an axis, its values, and what a value sets.
type Axis = (&'static str, Vec<f64>, fn(&mut Experiment, f64));

struct Point {
    axes: Axes,
    experiment: Experiment,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let points = prepare(args).map_err(bad_input)?;
    let watch = Watch::new()?;
    let total = points.len();
    let mut done: Vec<SweepPoint> = Vec::with_capacity(total);
    let mut baseline = String::new();
    for (number, point) in points.into_iter().enumerate() {
        if watch.is_stopped() {
            break;
        }
        let title = format!("point {} of {total}", number + 1);
        baseline = point.experiment.baseline.clone();
        done.extend(simulate_point(&point, &title, &baseline, &watch)?);
    }
    drop(watch);
    let partial = done.len() < total || done.iter().any(|point| point.partial);
    let report = SweepReport::new(baseline, done, partial);
    let written = args
        .simulate
        .files
        .write(&report, || Some(sweep_page(&report)));
    finish(&report, written, partial)
}

/// Checks everything, before the first simulation.
fn prepare(args: &Args) -> anyhow::Result<Vec<Point>> {
    ensure!(
        args.simulate.compare_json.is_none(),
        "--compare-json holds one comparison, and a sweep makes many; give --json"
    );
    ensure!(
        args.simulate.csv.is_none(),
        "--csv holds one simulation of each strategy, and a sweep makes many; give --json"
    );
    args.simulate.files.check()?;
    let mut points = vec![Point {
        axes: Axes::new(),
        experiment: args.simulate.experiment()?,
    }];
    let sizes = |values: &[usize]| values.iter().map(|&value| value as f64).collect();
    let stragglers = args.straggle_probabilities.clone();
    // The last axis varies fastest: rates, so that a knee's points follow each other.
    let axes: [Axis; 4] = [
        ("k", sizes(&args.ks), |it, k| {
            it.set_code(Some(k as usize), None)
        }),
        ("r", sizes(&args.rs), |it, r| {
            it.set_code(None, Some(r as usize))
        }),
        ("straggler_probability", stragglers, set_stragglers),
        ("rate", args.rates.clone(), |it, rate| it.rate = rate),
    ];
    for axis in axes.into_iter().filter(|(_, values, _)| !values.is_empty()) {
        points = cross(axis, &points);
    }
    ensure!(
        points.len() > 1,
        "a sweep needs several points; give several of --rates, --ks, --rs or \
         --straggle-probabilities"
    );
    let varies_code = !args.ks.is_empty() || !args.rs.is_empty();
    for point in &mut points {
        let experiment = &mut point.experiment;
        if varies_code && args.simulate.redundant_instances.is_none() && experiment.k > 0 {
            let redundant = experiment.instances.deployed * experiment.r;
            experiment.instances.redundant = redundant.div_ceil(experiment.k);
        }
        let strategies = simulations(experiment)?.len();
        ensure!(
            strategies > 1,
            "a sweep compares strategies; give at least two with --strategy"
        );
        let all = (experiment.requests as u64).saturating_mul(strategies as u64);
        ensure!(
            all <= MAX_RECORDS,
            "a point of a sweep has at most {MAX_RECORDS} queries of all strategies together, not \
             {all}; lower --queries"
        );
    }
    Ok(points)
}

fn set_stragglers(experiment: &mut Experiment, probability: f64) {
    let usual = Straggling {
        probability,
        min_ms: 15.0,
        max_ms: 45.0,
    };
    let straggle = &mut experiment.faults.straggle;
    straggle.get_or_insert(usual).probability = probability;
}

/// Each of `points` at each of `values` of one more axis.
fn cross((axis, values, set): Axis, points: &[Point]) -> Vec<Point> {
    let mut crossed = Vec::with_capacity(points.len() * values.len());
    for point in points {
        for &value in &values {
            let (mut axes, mut experiment) = (point.axes.clone(), point.experiment.clone());
            set(&mut experiment, value);
            axes.insert(axis.to_owned(), value);
            crossed.push(Point { axes, experiment });
        }
    }
    crossed
}

/// Returns the point's figures; `None` if it was broken off before anything could be compared.
fn simulate_point(
    point: &Point,
    title: &str,
    baseline: &str,
    watch: &Watch,
) -> anyhow::Result<Option<SweepPoint>> {
    let mut done: Vec<Simulated> = Vec::new();
    for mut simulation in simulations(&point.experiment)? {
        simulation.keep_records = true;
        let title = format!("{title}: {}", simulation.name);
        done.push(watch.simulate(&title, simulation)?);
    }
    let comparison = comparison(&point.experiment, &done);
    match analyse(&comparison, baseline, Bootstrap::default()) {
        Ok(report) => Ok(Some(SweepPoint::new(point.axes.clone(), &report))),
        Err(_) if watch.is_stopped() => Ok(None),
        Err(error) => Err(error),
    }
}
