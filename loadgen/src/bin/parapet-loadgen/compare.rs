//! `parapet-loadgen compare`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use parapet_loadgen::cluster::{self, ClusterError, Places, Update};
use parapet_loadgen::compare::{
    Bootstrap, CompareReport, CompareText, Comparison, HostStalls, analyse,
};
use parapet_loadgen::experiment::{Experiment, Strategy};
use parapet_loadgen::payload::{Rows, WireEncoding};
use parapet_loadgen::report::{Slo, SloFigures, check, compare_page, latency_histogram};
use parapet_loadgen::run::Stop;
use parapet_loadgen::schedule::Arrivals;
use parking_lot::Mutex;

use crate::display::{CompareState, Live};
use crate::files::{Recordings, check_writable, write_file, write_json};
use crate::interrupt::Interrupts;
use crate::payload::Payload;
use crate::run::{BAD_INPUT, Error, FAILED, INTERRUPTED, allow_many_connections, failed};

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
    /// Write the report as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report as a page with plots
    #[arg(long)]
    html: Option<PathBuf>,
    #[command(flatten)]
    recordings: Recordings,
    /// Objective that a strategy has to meet, for exit code 0: coded:p99.9=30ms, hedge:failed=0.1%
    /// (repeatable)
    #[arg(long)]
    slo: Vec<String>,
}

/// Objectives by strategy.
fn objectives(args: &Args, experiment: &Experiment) -> anyhow::Result<Vec<(String, Slo)>> {
    let objective = |text: &String| {
        let (name, slo) = text.split_once(':').with_context(|| {
            format!("--slo {text:?}: give STRATEGY:OBJECTIVE, as coded:p99.9=30ms")
        })?;
        ensure!(
            experiment
                .strategies
                .iter()
                .any(|strategy| strategy.name == name),
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
        let breaches = report
            .strategy(name)
            .map(|strategy| check(&[*slo], SloFigures::from(strategy)));
        for breach in breaches.into_iter().flatten() {
            eprintln!("parapet-loadgen: {name}: {breach}");
            breached = true;
        }
    }
    breached
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let bad = |cause: anyhow::Error| Error {
        code: BAD_INPUT,
        cause,
    };
    let (experiment, rows) = prepare(args).map_err(bad)?;
    let objectives = objectives(args, &experiment).map_err(bad)?;
    let temporary = tempfile::tempdir()
        .context("cannot make a temporary folder")
        .map_err(failed)?;
    let places = match &args.repository {
        Some(repository) => Some(places(args, repository, temporary.path()).map_err(bad)?),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(failed)?;
    allow_many_connections();
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
    let written = recorded.and(write_files(args, &report));
    let shown = write!(std::io::stdout(), "{}", CompareText(&report));
    written.map_err(failed)?;
    shown
        .context("cannot write the summary to standard output")
        .map_err(failed)?;
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
    args.recordings.check(
        experiment
            .strategies
            .iter()
            .map(|strategy| strategy.name.as_str()),
    )?;
    if experiment.starts_processes() {
        let repository = args
            .repository
            .as_ref()
            .context("no model repository for the instances; give it with --repository")?;
        ensure!(
            repository.is_dir(),
            "{}: not a folder; give the model repository with --repository",
            repository.display()
        );
    }
    let rows = args.payload.load()?;
    Ok((experiment, rows))
}

/// The comparison of frontends that run already.
fn of_targets(args: &Args) -> anyhow::Result<Experiment> {
    ensure!(
        !args.target.is_empty(),
        "nothing to compare; give --experiment, or --target NAME=http://host:port for each strategy"
    );
    let strategy = |text: &String| {
        let (name, url) = text.split_once('=').with_context(|| {
            format!("--target {text:?}: give NAME=http://host:port, as coded=http://127.0.0.1:8000")
        })?;
        Ok(Strategy {
            name: name.to_owned(),
            url: Some(url.to_owned()),
            ..Strategy::default()
        })
    };
    let strategies: Vec<Strategy> = args
        .target
        .iter()
        .map(strategy)
        .collect::<anyhow::Result<_>>()?;
    let model = args
        .model
        .clone()
        .context("no model; give --model with --target")?;
    let rate = args
        .rate
        .context("no rate; give --rate in requests/s with --target")?;
    let requests = args
        .requests
        .context("no number of requests to each strategy; give --requests with --target")?;
    Ok(Experiment::of_targets(model, rate, requests, strategies))
}

/// Leaves those strategies that were asked for.
fn select(args: &Args, experiment: &mut Experiment, file: &Path) -> anyhow::Result<()> {
    let Some(names) = &args.strategies else {
        return Ok(());
    };
    for name in names {
        ensure!(
            experiment
                .strategies
                .iter()
                .any(|strategy| strategy.name == *name),
            "unknown strategy {name:?}; {} has {}",
            file.display(),
            experiment
                .strategies
                .iter()
                .map(|s| s.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
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
    let interrupted = stop.clone();
    let names = experiment
        .strategies
        .iter()
        .map(|strategy| strategy.name.clone());
    let state = Arc::new(Mutex::new(CompareState::new(experiment.blocks, names)));
    let live = {
        let state = Arc::clone(&state);
        Live::start(Box::new(move || state.lock().status()))
    };
    let (noted, plain) = (Arc::clone(&state), live.is_none());
    let mut interrupts = Interrupts::listen().map_err(failed)?;
    let watch = tokio::spawn(async move {
        interrupts.next().await;
        noted.lock().note = ENDING;
        if plain {
            eprintln!("{ENDING}");
        }
        interrupted.sending.cancel();
        interrupts.next().await;
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
            ClusterError::Process(_)
            | ClusterError::Bodies(_)
            | ClusterError::Schedule(_)
            | ClusterError::Given { .. }
            | ClusterError::Inputs { .. }
            | ClusterError::NoPlaces => BAD_INPUT,
            _ => crate::run::FAILED,
        };
        Error {
            code,
            cause: error.into(),
        }
    })
}

/// Writes a line for each block; the reader may be gone.
fn show(experiment: &Experiment, update: &Update<'_>) {
    let name = |strategy: usize| {
        experiment
            .strategies
            .get(strategy)
            .map_or("", |it| it.name.as_str())
    };
    let mut err = std::io::stderr();
    let _ = match update {
        Update::Starting(ready, of) if ready == of => writeln!(err, "{of} instances run"),
        Update::Starting(..) => Ok(()),
        Update::Begins {
            block: None,
            strategy,
            ..
        } => writeln!(err, "warm-up  {}", name(*strategy)),
        Update::Begins { .. } => Ok(()),
        Update::Repeats {
            strategy,
            block,
            stalls,
        } => {
            let reason = stalls.map_or_else(
                || "the generator was late".to_owned(),
                |HostStalls {
                     total_ms,
                     longest_ms,
                 }| {
                    format!(
                        "the machine stood still for {total_ms:.0} ms, {longest_ms:.0} ms at once"
                    )
                },
            );
            let (block, of, name) = (block + 1, experiment.blocks, name(*strategy));
            writeln!(err, "block {block:>2}/{of}  {name:<24} {reason}; once more")
        }
        Update::Ended {
            strategy,
            block,
            recording,
        } => {
            let latency = latency_histogram(&recording.records);
            let ms = |quantile| {
                Duration::from_micros(latency.value_at_quantile(quantile)).as_secs_f64() * 1e3
            };
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

fn write_recordings(
    args: &Args,
    comparison: &Comparison,
    started: SystemTime,
) -> anyhow::Result<()> {
    if args.recordings.is_empty() {
        return Ok(());
    }
    let mut strategies = comparison.strategies.iter();
    strategies.try_for_each(|measured| {
        args.recordings
            .write(&measured.name, &measured.recording(), started)
    })
}

fn write_files(args: &Args, report: &CompareReport) -> anyhow::Result<()> {
    if let Some(path) = &args.json {
        write_json(path, report)?;
    }
    if let Some(path) = &args.html {
        write_file(path, |out| out.write_all(compare_page(report).as_bytes()))?;
    }
    Ok(())
}
