//! `parapet-loadgen sweep`: many simulations, and where each strategy wins.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::ensure;
use parapet_config::faults::Straggling;
use parapet_loadgen::compare::{Bootstrap, SweepPoint, SweepReport, analyse};
use parapet_loadgen::experiment::ResolvedArm;
use parapet_loadgen::report::sweep_page;
use parapet_loadgen::simulate::{MAX_RECORDS, Setup, Simulated, comparison};

use crate::outcome::{Error, bad_input, failed, finish};
use crate::simulate::{self, Watch};

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

/// One combination of the axes.
struct Point {
    axes: BTreeMap<String, f64>,
    setup: Setup,
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
        baseline = point.setup.baseline.clone().unwrap_or_default();
        done.extend(simulate_point(&point, &title, &baseline, &watch)?);
    }
    drop(watch);
    let partial = done.len() < total || done.iter().any(|point| point.partial);
    let report = SweepReport::new(baseline, done, partial);
    let written = args
        .simulate
        .files
        .write(&report, || Some(sweep_page(&report)));
    finish(&report, written, partial, &[])
}

/// Checks everything, before the first simulation.
fn prepare(args: &Args) -> anyhow::Result<Vec<Point>> {
    ensure!(
        args.simulate.compare_json.is_none(),
        "--compare-json holds one comparison, and a sweep makes many; give --json"
    );
    ensure!(
        args.simulate.recordings.is_empty(),
        "--csv, --hgrm and --hlog hold one simulation of each strategy, and a sweep makes many; \
            give --json"
    );
    args.simulate.files.check()?;
    let (base, ignored) = args.simulate.setup()?;
    let mut points = vec![Point {
        axes: BTreeMap::new(),
        setup: base.clone(),
    }];
    // The last axis varies fastest: rates, so that a knee's points follow each other.
    cross(&mut points, "k", &args.ks, |setup, &k| {
        setup.set_k(k);
        k as f64
    });
    cross(&mut points, "r", &args.rs, |setup, &r| {
        setup.set_r(r);
        r as f64
    });
    cross(
        &mut points,
        "straggler_probability",
        &args.straggle_probabilities,
        |setup, &probability| {
            let faults = setup.faults.get_or_insert_default();
            let usual = Straggling {
                probability,
                min_ms: 15.0,
                max_ms: 45.0,
            };
            faults.straggle = Some(Straggling {
                probability,
                ..faults.straggle.unwrap_or(usual)
            });
            probability
        },
    );
    cross(&mut points, "rate", &args.rates, |setup, &rate| {
        setup.rate = rate;
        rate
    });
    ensure!(
        points.len() > 1,
        "a sweep needs several points; give several of --rates, --ks, --rs or \
            --straggle-probabilities"
    );
    let varies_code = !args.ks.is_empty() || !args.rs.is_empty();
    for point in &mut points {
        let setup = &mut point.setup;
        if varies_code && args.simulate.redundant_instances.is_none() && setup.k > 0 {
            setup.redundant_instances = (setup.instances * setup.r).div_ceil(setup.k);
        }
        if let Some(faults) = &setup.faults {
            faults.validate().map_err(anyhow::Error::msg)?;
        }
        let strategies = setup.simulations()?.len();
        ensure!(
            strategies > 1,
            "a sweep compares strategies; give at least two with --strategy"
        );
        let all = setup.queries.saturating_mul(strategies as u64);
        ensure!(
            all <= MAX_RECORDS,
            "a point of a sweep has at most {MAX_RECORDS} queries of all strategies together, not \
                {all}; lower --queries"
        );
    }
    simulate::tell_ignored(&ignored);
    Ok(points)
}

fn cross<T>(
    points: &mut Vec<Point>,
    axis: &str,
    values: &[T],
    set: impl Fn(&mut Setup, &T) -> f64,
) {
    if values.is_empty() {
        return;
    }
    let mut crossed = Vec::with_capacity(points.len() * values.len());
    for point in points.iter() {
        for value in values {
            let (mut axes, mut setup) = (point.axes.clone(), point.setup.clone());
            let shown = set(&mut setup, value);
            axes.insert(axis.to_owned(), shown);
            crossed.push(Point { axes, setup });
        }
    }
    *points = crossed;
}

/// Returns the point's figures; `None` if it was broken off before anything could be compared.
fn simulate_point(
    point: &Point,
    title: &str,
    baseline: &str,
    watch: &Watch,
) -> Result<Option<SweepPoint>, Error> {
    let simulations = point.setup.simulations().map_err(failed)?;
    let mut done: Vec<(ResolvedArm, Simulated)> = Vec::new();
    for (spec, mut simulation) in simulations {
        simulation.keep_records = true;
        let simulated = watch.simulate(format!("{title}: {}", spec.label), simulation)?;
        done.push((spec, simulated));
    }
    let comparison = comparison(&point.setup, &done);
    match analyse(&comparison, baseline, Bootstrap::default()) {
        Ok(report) => Ok(Some(SweepPoint::new(point.axes.clone(), &report))),
        Err(_) if watch.is_stopped() => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
