//! `parapet-loadgen compare`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use parapet_loadgen::cluster::{self, ClusterError, Places};
use parapet_loadgen::compare::{Bootstrap, CompareReport, Comparison, analyse};
use parapet_loadgen::experiment::Experiment;
use parapet_loadgen::payload::{Rows, WireEncoding};
use parapet_loadgen::report::{Slo, SloFigures, check, compare_page};
use parapet_loadgen::run::Stop;
use parapet_loadgen::schedule::Arrivals;
use parking_lot::Mutex;

use crate::display::{CompareState, Live};
use crate::files::{Recordings, ReportFiles};
use crate::interrupt::stop_on_interrupt;
use crate::outcome::{Error, bad_input, failed, finish};
use crate::payload::Payload;
use crate::run::runtime;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The experiment: cluster, faults, load and strategies; see loadgen/experiments
    #[arg(long)]
    experiment: Option<PathBuf>,
    /// A frontend that runs already, NAME=http://host:port, in place of --experiment (repeatable)
    #[arg(long)]
    target: Vec<String>,
    /// The model repository that the instances serve from; only for strategies that are started
    /// here
    #[arg(long)]
    repository: Option<PathBuf>,
    #[command(flatten)]
    payload: Payload,
    /// Only these strategies of the experiment
    #[arg(long, value_delimiter = ',')]
    strategies: Option<Vec<String>>,
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
    /// Folder of parapet-instance and parapet-frontend [default: this program's]
    #[arg(long)]
    bin_dir: Option<PathBuf>,
    /// Folder for configurations and logs [default: a temporary one, removed at the end]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    #[command(flatten)]
    files: ReportFiles,
    #[command(flatten)]
    recordings: Recordings,
    /// Objective that a strategy has to meet, for exit code 0: coded:p99.9=30ms, hedge:failed=0.1%
    /// (repeatable)
    #[arg(long)]
    slo: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let (experiment, rows) = prepare(args).map_err(bad_input)?;
    let objectives = objectives(args, &experiment).map_err(bad_input)?;
    let temporary = tempfile::tempdir().context("cannot make a temporary folder");
    let temporary = temporary.map_err(failed)?;
    let places = match &args.repository {
        Some(repository) => Some(places(args, repository, temporary.path()).map_err(bad_input)?),
        None => None,
    };
    let runtime = runtime(1)?;
    let started = SystemTime::now();
    let comparison = runtime.block_on(drive(&experiment, places.as_ref(), &rows))?;
    let bootstrap = Bootstrap {
        seed: experiment.seed,
        ..Bootstrap::default()
    };
    let recorded = write_recordings(args, &comparison, started);
    let report = analyse(&comparison, &experiment.baseline, bootstrap)
        .context("cannot analyse the comparison")
        .map_err(failed)?;
    let written = recorded.and(args.files.write(&report, || Some(compare_page(&report))));
    let missed = missed(&objectives, &report);
    finish(&report, written, report.partial, &missed)
}

/// Objectives by strategy.
fn objectives(args: &Args, experiment: &Experiment) -> anyhow::Result<Vec<(String, Slo)>> {
    let objective = |text: &String| {
        let (name, slo) = text.split_once(':').with_context(|| {
            format!("--slo {text:?}: give STRATEGY:OBJECTIVE, as coded:p99.9=30ms")
        })?;
        ensure!(
            experiment.names().any(|known| known == name),
            "--slo {text:?}: no strategy is named {name:?}; name one of the experiment's"
        );
        Ok((name.to_owned(), slo.parse()?))
    };
    args.slo.iter().map(objective).collect()
}

/// A line for each objective that was missed.
fn missed(objectives: &[(String, Slo)], report: &CompareReport) -> Vec<String> {
    let missed = |(name, slo): &(String, Slo)| {
        let figures = SloFigures::from(report.strategy(name)?);
        let breach = check(&[*slo], figures).into_iter().next()?;
        Some(format!("{name}: {breach}"))
    };
    objectives.iter().filter_map(missed).collect()
}

fn prepare(args: &Args) -> anyhow::Result<(Experiment, Rows)> {
    args.files.check()?;
    let (mut experiment, file) = match &args.experiment {
        Some(path) => {
            ensure!(
                args.target.is_empty(),
                "--experiment and --target both say what to compare; give one of them"
            );
            (Experiment::read(path)?, path.as_path())
        }
        None => (of_targets(args)?, Path::new("command line")),
    };
    select(args, &mut experiment, file)?;
    macro_rules! take {
        ($($field:ident),*) => {$(
            if let Some(value) = &args.$field {
                experiment.$field = value.clone();
            }
        )*};
    }
    take!(
        model, rate, arrivals, requests, blocks, warm_up, repeats, timeout_ms, encoding, seed,
        baseline
    );
    experiment.check(file)?;
    args.recordings.check(experiment.names())?;
    if experiment.starts_processes() {
        let repository = args.repository.as_ref();
        let repository = repository
            .context("no model repository for the instances; give it with --repository")?;
        ensure!(
            repository.is_dir(),
            "{}: not a folder; give the model repository with --repository",
            repository.display()
        );
    }
    Ok((experiment, args.payload.load()?))
}

/// The comparison of frontends that run already.
fn of_targets(args: &Args) -> anyhow::Result<Experiment> {
    ensure!(
        !args.target.is_empty(),
        "nothing to compare; give --experiment, or --target NAME=http://host:port for each strategy"
    );
    let target = |text| {
        let text: &String = text;
        text.split_once('=').with_context(|| {
            format!("--target {text:?}: give NAME=http://host:port, as coded=http://127.0.0.1:8000")
        })
    };
    let targets: Vec<_> = args
        .target
        .iter()
        .map(target)
        .collect::<anyhow::Result<_>>()?;
    let model = args
        .model
        .as_ref()
        .context("no model; give --model with --target")?;
    let rate = args
        .rate
        .context("no rate; give --rate in requests/s with --target")?;
    let requests = args
        .requests
        .context("no number of requests to each strategy; give --requests with --target")?;
    Experiment::of_targets(model, rate, requests, &targets)
}

/// Leaves those strategies that were asked for.
fn select(args: &Args, experiment: &mut Experiment, file: &Path) -> anyhow::Result<()> {
    let Some(names) = &args.strategies else {
        return Ok(());
    };
    for name in names {
        ensure!(
            experiment.names().any(|known| known == name),
            "unknown strategy {name:?}; {} has {}",
            file.display(),
            experiment.names().collect::<Vec<_>>().join(", ")
        );
    }
    experiment
        .strategies
        .retain(|strategy| names.contains(&strategy.name));
    if !names.contains(&experiment.baseline)
        && let Some(first) = experiment.strategies.first()
    {
        experiment.baseline = first.name.clone();
    }
    Ok(())
}

fn places(args: &Args, repository: &Path, temporary: &Path) -> anyhow::Result<Places> {
    let work = args
        .work_dir
        .clone()
        .unwrap_or_else(|| temporary.to_owned());
    std::fs::create_dir_all(&work)
        .with_context(|| format!("{}: cannot make the folder", work.display()))?;
    let repository = std::path::absolute(repository).unwrap_or_else(|_| repository.to_owned());
    Ok(Places {
        programs: programs(args)?,
        repository,
        work,
    })
}

fn programs(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.bin_dir {
        return Ok(folder.clone());
    }
    let program =
        std::env::current_exe().context("cannot find this program's folder; give --bin-dir")?;
    Ok(program.parent().unwrap_or(Path::new(".")).to_owned())
}

const ENDING: &str = "ending: the report is partial; Ctrl-C again waits no longer";

async fn drive(
    experiment: &Experiment,
    places: Option<&Places>,
    rows: &Rows,
) -> Result<Comparison, Error> {
    let stop = Stop::default();
    let names = experiment.names().map(str::to_owned).collect();
    let state = Arc::new(Mutex::new(CompareState::new(experiment.blocks, names)));
    let drawn = Arc::clone(&state);
    let live = Live::bar(move || drawn.lock().status());
    let notes = live.notes();
    let _interrupts = stop_on_interrupt(&stop, live.notes(), ENDING).map_err(failed)?;
    let compared = cluster::compare(experiment, places, rows, &stop, |update| {
        if let Some(line) = state.lock().observe(&update) {
            notes.log(&line);
        }
    });
    compared.await.map_err(|error| match error {
        ClusterError::Input(cause) => bad_input(cause),
        ClusterError::Run(cause) => failed(cause),
    })
}

fn write_recordings(
    args: &Args,
    comparison: &Comparison,
    started: SystemTime,
) -> anyhow::Result<()> {
    if args.recordings.is_empty() {
        return Ok(());
    }
    for measured in &comparison.strategies {
        args.recordings
            .write(&measured.name, &measured.recording(), started)?;
    }
    Ok(())
}
