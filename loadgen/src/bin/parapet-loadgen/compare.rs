//! `parapet-loadgen compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use parapet_loadgen::cluster::{MeasuredCluster, Places};
use parapet_loadgen::compare::{Bootstrap, Comparison, analyse};
use parapet_loadgen::experiment::{Arm, Experiment, usual_baseline};
use parapet_loadgen::payload::{Rows, WireEncoding};
use parapet_loadgen::report::compare_page;
use parapet_loadgen::run::Stop;
use parapet_loadgen::schedule::Arrivals;

use crate::files::{ReportFiles, check_folder, write_strategy_csv};
use crate::live::{log, stop_on_interrupt};
use crate::run::Payload;
use crate::{Error, bad_input, finish, runtime};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The experiment: cluster, faults, load and strategies; see loadgen/experiments
    #[arg(long)]
    experiment: Option<PathBuf>,
    /// A frontend that runs already, NAME=http://host:port, in place of --experiment (repeatable)
    #[arg(long, conflicts_with = "experiment")]
    target: Vec<String>,
    /// The model repository that the instances serve from; only for strategies that are started
    /// here
    #[arg(long)]
    repository: Option<PathBuf>,
    #[command(flatten)]
    payload: Payload,
    /// Model to ask, instead of the experiment's
    #[arg(long)]
    model: Option<String>,
    /// Mean requests/s, instead of the experiment's
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Distribution of arrivals over time, as for run, instead of the experiment's [default
    /// with --target: poisson]
    #[arg(long)]
    arrivals: Option<Arrivals>,
    /// Requests to each strategy, instead of the experiment's
    #[arg(long)]
    requests: Option<usize>,
    /// Blocks into which they are cut, instead of the experiment's [default with --target: 10]
    #[arg(long)]
    blocks: Option<usize>,
    /// Requests to each strategy that count for nothing, instead of the experiment's [default with
    /// --target: 300]
    #[arg(long)]
    warm_up: Option<usize>,
    /// Repeats of a block in which the generator was late, instead of the experiment's [default: 2]
    #[arg(long)]
    repeats: Option<usize>,
    /// Milliseconds after which a request is given up, instead of the experiment's [default with
    /// --target: 2000]
    #[arg(long)]
    timeout_ms: Option<u64>,
    /// Form of the tensors, binary or json, instead of the experiment's [default with --target:
    /// binary]
    #[arg(long)]
    encoding: Option<WireEncoding>,
    /// Seed, instead of the experiment's [default with --target: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// Strategy that the others are compared with, instead of the experiment's [default with
    /// --target: equal_resources, or the first]
    #[arg(long)]
    baseline: Option<String>,
    /// Folder for configurations and logs [default: a temporary one, removed at the end]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
    /// Folder for a CSV file of each strategy, with a line for each request
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
}

const ENDING: &str = "ending: the report is partial; Ctrl-C again waits no longer";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let (experiment, rows) = prepare(args).map_err(bad_input)?;
    let temporary = tempfile::tempdir().context("cannot make a temporary folder")?;
    let places = args.repository.as_ref();
    let places = places.map(|repository| places_of(args, repository, temporary.path()));
    let places = places.transpose().map_err(bad_input)?;
    let comparison = runtime(1)?.block_on(drive(&experiment, places.as_ref(), &rows))?;
    let recorded = args.csv.iter().try_for_each(|folder| {
        comparison.strategies.iter().try_for_each(|measured| {
            write_strategy_csv(folder, &measured.name, &measured.records())
        })
    });
    let bootstrap = Bootstrap { seed: experiment.seed, ..Bootstrap::default() };
    let report = analyse(&comparison, &experiment.baseline, bootstrap);
    let report = report.context("cannot analyse the comparison")?;
    let written = recorded.and(args.files.write(&report, || Some(compare_page(&report))));
    finish(&report, written, report.partial)
}

fn prepare(args: &Args) -> anyhow::Result<(Experiment, Rows)> {
    args.files.check()?;
    let (mut experiment, file) = match &args.experiment {
        Some(path) => (Experiment::read(path)?, path.as_path()),
        None => (of_targets(args)?, Path::new("command line")),
    };
    override_fields!(
        experiment, args, model, rate, arrivals, requests, blocks, warm_up, repeats, timeout_ms,
        encoding, seed, baseline
    );
    experiment.check(file)?;
    if let Some(folder) = &args.csv {
        check_folder(folder)?;
    }
    Ok((experiment, args.payload.load()?))
}

/// The comparison of frontends that run already; all else has its default.
fn of_targets(args: &Args) -> anyhow::Result<Experiment> {
    ensure!(
        !args.target.is_empty(),
        "nothing to compare; give --experiment, or --target NAME=http://host:port for each strategy"
    );
    let mut experiment = Experiment::default();
    for text in &args.target {
        let (name, url) = text.split_once('=').with_context(|| {
            format!("--target {text:?}: give NAME=http://host:port, as coded=http://127.0.0.1:8000")
        })?;
        let (name, url) = (name.to_owned(), Some(url.to_owned()));
        experiment.strategies.push(Arm { name, url, ..Arm::default() });
    }
    experiment.baseline = usual_baseline(experiment.names()).to_owned();
    Ok(experiment)
}

fn places_of(args: &Args, repository: &Path, temporary: &Path) -> anyhow::Result<Places> {
    ensure!(
        repository.is_dir(),
        "{}: not a folder; give the model repository with --repository",
        repository.display()
    );
    let work = args.work_dir.as_deref().unwrap_or(temporary).to_owned();
    std::fs::create_dir_all(&work)
        .with_context(|| format!("{}: cannot make the folder", work.display()))?;
    let program = std::env::current_exe().context("cannot find this program's folder")?;
    Ok(Places {
        programs: program.parent().unwrap_or(Path::new(".")).to_owned(),
        repository: std::path::absolute(repository).unwrap_or_else(|_| repository.to_owned()),
        work,
    })
}

async fn drive(
    experiment: &Experiment,
    places: Option<&Places>,
    rows: &Rows,
) -> Result<Comparison, Error> {
    let stop = Stop::default();
    let _interrupts = stop_on_interrupt(&stop, ENDING)?;
    let cluster = MeasuredCluster::start(experiment, places, rows, &stop, log).await;
    Ok(cluster.map_err(bad_input)?.compare().await?)
}
