//! `parapet-loadgen compare`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use parapet_loadgen::cluster::{self, ClusterError, Experiment, Places, Update};
use parapet_loadgen::compare::{Bootstrap, CompareReport, CompareText, Comparison, analyse};
use parapet_loadgen::payload::Rows;
use parapet_loadgen::report::{Slo, SloFigures, check, compare_page, latency_histogram};
use parapet_loadgen::run::Stop;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use crate::display::{CompareState, Live, compare_height, compare_lines};
use crate::payload::Payload;
use crate::run::{
    BAD_INPUT, Error, FAILED, INTERRUPTED, allow_many_connections, check_writable, failed, write_file,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The experiment: cluster, faults, load and strategies; see loadgen/experiments
    #[arg(long)]
    experiment: PathBuf,
    /// The model repository that the instances serve from
    #[arg(long)]
    repository: PathBuf,
    #[command(flatten)]
    payload: Payload,
    /// Only these strategies of the experiment
    #[arg(long, value_delimiter = ',')]
    strategies: Option<Vec<String>>,
    /// Mean requests/s, instead of the experiment's
    #[arg(long, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Requests to each strategy, instead of the experiment's
    #[arg(long)]
    requests: Option<usize>,
    /// Seed, instead of the experiment's
    #[arg(long)]
    seed: Option<u64>,
    /// Folder of parapet-instance and parapet-frontend [default: this program's]
    #[arg(long)]
    bin_dir: Option<PathBuf>,
    /// Folder for configurations and logs [default: a temporary one, removed at the end]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long)]
    html: Option<PathBuf>,
    /// Objective that a strategy has to meet, for exit code 0: coded:p99.9=30ms, hedge:failed=0.1% (repeatable)
    #[arg(long)]
    slo: Vec<String>,
}

/// Objectives by strategy.
fn objectives(args: &Args, experiment: &Experiment) -> anyhow::Result<Vec<(String, Slo)>> {
    let objective = |text: &String| {
        let (name, slo) = text
            .split_once(':')
            .with_context(|| format!("--slo {text:?}: give STRATEGY:OBJECTIVE, as coded:p99.9=30ms"))?;
        ensure!(
            experiment.strategies.iter().any(|strategy| strategy.name == name),
            "--slo {text:?}: no strategy is named {name:?}; name one of the experiment's"
        );
        Ok((name.to_owned(), slo.parse()?))
    };
    args.slo.iter().map(objective).collect()
}

/// Tells which objectives were missed; whether there were any.
fn breached(objectives: &[(String, Slo)], report: &CompareReport) -> bool {
    let mut breached = false;
    for (name, slo) in objectives {
        let breaches = report.strategy(name).map(|strategy| check(&[*slo], SloFigures::from(strategy)));
        for breach in breaches.into_iter().flatten() {
            eprintln!("parapet-loadgen: {name}: {breach}");
            breached = true;
        }
    }
    breached
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let bad = |cause: anyhow::Error| Error { code: BAD_INPUT, cause };
    let (experiment, rows) = prepare(args).map_err(bad)?;
    let objectives = objectives(args, &experiment).map_err(bad)?;
    let temporary = tempfile::tempdir().context("cannot make a temporary folder").map_err(failed)?;
    let work = args.work_dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&work)
        .with_context(|| format!("{}: cannot make the folder", work.display()))
        .map_err(bad)?;
    let places = Places {
        programs: programs(args).map_err(bad)?,
        repository: std::path::absolute(&args.repository).unwrap_or_else(|_| args.repository.clone()),
        work,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(failed)?;
    allow_many_connections();
    let comparison = runtime.block_on(drive(&experiment, &places, &rows))?;
    let bootstrap = Bootstrap { seed: experiment.seed, ..Bootstrap::default() };
    let report = analyse(&comparison, &experiment.baseline, bootstrap)
        .context("cannot analyse the comparison")
        .map_err(failed)?;
    let written = write_files(args, &report);
    let shown = write!(std::io::stdout(), "{}", CompareText(&report));
    written.map_err(failed)?;
    shown.context("cannot write the summary to standard output").map_err(failed)?;
    let breached = breached(&objectives, &report);
    Ok(match (report.partial, breached) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::from(FAILED),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn prepare(args: &Args) -> anyhow::Result<(Experiment, Rows)> {
    for path in [&args.json, &args.html].into_iter().flatten() {
        check_writable(path)?;
    }
    let mut experiment = Experiment::read(&args.experiment)?;
    if let Some(names) = &args.strategies {
        for name in names {
            ensure!(
                experiment.strategies.iter().any(|strategy| strategy.name == *name),
                "unknown strategy {name:?}; {} has {}",
                args.experiment.display(),
                experiment.strategies.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ")
            );
        }
        experiment.strategies.retain(|strategy| names.contains(&strategy.name));
        if !names.contains(&experiment.baseline)
            && let Some(first) = experiment.strategies.first()
        {
            experiment.baseline = first.name.clone();
        }
    }
    experiment.rate = args.rate.unwrap_or(experiment.rate);
    experiment.requests = args.requests.unwrap_or(experiment.requests);
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    experiment.check(&args.experiment)?;
    ensure!(
        args.repository.is_dir(),
        "{}: not a folder; give the model repository with --repository",
        args.repository.display()
    );
    let rows = args.payload.load()?;
    Ok((experiment, rows))
}

fn programs(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.bin_dir {
        return Ok(folder.clone());
    }
    let program = std::env::current_exe().context("cannot find this program's folder; give --bin-dir")?;
    Ok(program.parent().unwrap_or(Path::new(".")).to_owned())
}

const ENDING: &str = "ending: the report is partial; Ctrl-C again waits no longer";

async fn drive(experiment: &Experiment, places: &Places, rows: &Rows) -> Result<Comparison, Error> {
    let stop = Stop::default();
    let interrupted = stop.clone();
    let names = experiment.strategies.iter().map(|strategy| strategy.name.clone());
    let state = Arc::new(Mutex::new(CompareState::new(experiment.blocks, names)));
    let live = {
        let state = Arc::clone(&state);
        let render = move |width, colours| compare_lines(&state.lock(), width, colours);
        Live::start(compare_height(experiment.strategies.len()), Box::new(render))
    };
    let (noted, plain) = (Arc::clone(&state), live.is_none());
    let mut interrupts =
        signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C").map_err(failed)?;
    let watch = tokio::spawn(async move {
        interrupts.recv().await;
        noted.lock().note = ENDING;
        if plain {
            eprintln!("{ENDING}");
        }
        interrupted.sending.cancel();
        interrupts.recv().await;
        interrupted.waiting.cancel();
    });
    let comparison = cluster::compare(experiment, places, rows, rows.names(), &stop, |update| {
        if plain {
            show(experiment, &update);
        } else {
            state.lock().observe(&update);
        }
    })
    .await;
    watch.abort();
    comparison.map_err(|error| {
        let code = match error {
            ClusterError::Process(_) | ClusterError::Bodies(_) | ClusterError::Schedule(_) => BAD_INPUT,
            _ => crate::run::FAILED,
        };
        Error { code, cause: error.into() }
    })
}

/// A line for each block; nobody may be reading.
fn show(experiment: &Experiment, update: &Update<'_>) {
    let name = |strategy: usize| experiment.strategies.get(strategy).map_or("", |it| it.name.as_str());
    let mut err = std::io::stderr();
    let _ = match update {
        Update::Starting(ready, of) if ready == of => writeln!(err, "{of} instances run"),
        Update::Starting(..) => Ok(()),
        Update::Begins { block: None, strategy, .. } => writeln!(err, "warm-up  {}", name(*strategy)),
        Update::Begins { .. } => Ok(()),
        Update::Ended { strategy, block, recording } => {
            let latency = latency_histogram(&recording.records);
            let ms =
                |quantile| Duration::from_micros(latency.value_at_quantile(quantile)).as_secs_f64() * 1e3;
            writeln!(
                err,
                "block {:>2}/{}  {:<24} answered {:>6}  p50 {:>7.2}  p99 {:>7.2}  p99.9 {:>7.2} ms",
                block + 1,
                experiment.blocks,
                name(*strategy),
                latency.len(),
                ms(0.5),
                ms(0.99),
                ms(0.999)
            )
        }
    };
}

fn write_files(args: &Args, report: &CompareReport) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        write_file(path, |out| {
            serde_json::to_writer_pretty(&mut *out, report)?;
            writeln!(out)
        })?;
    }
    if let Some(path) = &args.html {
        write_file(path, |out| out.write_all(compare_page(report).as_bytes()))?;
    }
    Ok(())
}
