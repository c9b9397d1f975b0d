//! `parapet-loadgen sweep`: many simulations, and where each strategy wins.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use parapet_config::faults::Straggling;
use parapet_loadgen::compare::{Bootstrap, SweepPoint, SweepReport, analyse};
use parapet_loadgen::experiment::ResolvedArm;
use parapet_loadgen::report::sweep_page;
use parapet_loadgen::simulate::{MAX_RECORDS, Setup, Simulated, Simulator, comparison};

use crate::files::{check_writable, write_file, write_json};
use crate::run::{BAD_INPUT, Error, INTERRUPTED, failed};
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
    let points = prepare(args).map_err(|cause| Error {
        code: BAD_INPUT,
        cause,
    })?;
    let mut watch = Watch::new().map_err(failed)?;
    let total = points.len();
    let mut done = Vec::with_capacity(total);
    let mut baseline = String::new();
    for (number, point) in points.into_iter().enumerate() {
        if watch.is_stopped() {
            break;
        }
        let (swept, of) = simulate_point(&point, number, total, &mut watch)?;
        baseline = of;
        done.extend(swept);
    }
    drop(watch);
    let partial = done.len() < total || done.iter().any(|point: &SweepPoint| point.partial);
    let report = SweepReport::new(baseline, done, partial);
    let written = write_files(args, &report);
    let shown = table(&report);
    written.map_err(failed)?;
    shown
        .context("cannot write the figures to standard output")
        .map_err(failed)?;
    Ok(if partial {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
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
    for path in [&args.simulate.json, &args.simulate.html]
        .into_iter()
        .flatten()
    {
        check_writable(path)?;
    }
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

fn simulate_point(
    point: &Point,
    number: usize,
    total: usize,
    watch: &mut Watch,
) -> Result<(Option<SweepPoint>, String), Error> {
    let mut done: Vec<(ResolvedArm, Simulated)> = Vec::new();
    watch.restart(format!("point {} of {total}", number + 1), &point.setup);
    for (spec, mut simulation) in point
        .setup
        .simulations()
        .map_err(|error| failed(error.into()))?
    {
        simulation.keep_records = true;
        let simulator = Simulator::new(simulation).map_err(|invalid| failed(invalid.into()))?;
        watch.begin();
        done.push((spec, simulator.run(|progress| watch.look(&progress))));
    }
    let baseline = point.setup.baseline.clone().unwrap_or_default();
    let report = analyse(
        &comparison(&point.setup, &done),
        &baseline,
        Bootstrap::default(),
    );
    match report {
        Ok(report) => Ok((Some(SweepPoint::new(point.axes.clone(), &report)), baseline)),
        // Stopped before anything could be compared.
        Err(_) if watch.is_stopped() => Ok((None, baseline)),
        Err(error) => Err(failed(error.into())),
    }
}

fn table(report: &SweepReport) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    for point in &report.points {
        let axes: Vec<String> = point
            .axes
            .iter()
            .map(|(axis, value)| format!("{axis} {value}"))
            .collect();
        writeln!(out, "{}: {}", axes.join(", "), verdict(point))?;
        for row in &point.rows {
            let ratio = row
                .gap_ratio
                .map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.value));
            writeln!(
                out,
                "  {:<28} p50 {:>8.2}  p99 {:>8.2}  p99.9 {:>8.2} ms  gap {ratio:>6} times \
                    narrower  extra work {:>6.1} %",
                row.name,
                row.p50,
                row.p99,
                row.p99_9.value,
                row.extra_work.unwrap_or_default() * 100.0
            )?;
        }
    }
    for knee in &report.knees {
        let axes: Vec<String> = knee
            .axes
            .iter()
            .map(|(axis, value)| format!(", {axis} {value}"))
            .collect();
        let at = knee.rate.map_or_else(
            || "beyond the highest rate".to_owned(),
            |rate| format!("{rate}/s"),
        );
        writeln!(out, "knee of {}{}: {at}", knee.strategy, axes.concat())?;
    }
    Ok(())
}

fn verdict(point: &SweepPoint) -> String {
    match point.winner() {
        Some(winner) => format!("{winner} wins"),
        None if point.best.is_empty() => "too few queries to tell".to_owned(),
        None => format!("a tie of {}", point.best.join(", ")),
    }
}

fn write_files(args: &Args, report: &SweepReport) -> anyhow::Result<()> {
    if let Some(path) = &args.simulate.json {
        write_json(path, report)?;
    }
    if let Some(path) = &args.simulate.html {
        write_file(path, |out| out.write_all(sweep_page(report).as_bytes()))?;
    }
    Ok(())
}
