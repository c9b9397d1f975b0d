//! `parapet-loadgen run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::ArgAction;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parapet_loadgen::payload::{Bodies, RequestOptions, Rows, WireEncoding};
use parapet_loadgen::report::{self, Settings, Slo, SloFigures, TraceSettings};
use parapet_loadgen::run::{KernelPacer, Plan, Progress, Recording, Stop};
use parapet_loadgen::schedule::{Arrivals, Length, Schedule, Trace};
use parapet_loadgen::target::{AnyTransport, TargetUrl};
use tokio::runtime::Runtime;

use crate::display::{Live, run_status};
use crate::files::{ReportFiles, check_writable, write_recording};
use crate::interrupt::stop_on_interrupt;
use crate::outcome::{Error, bad_input, failed, finish};
use crate::payload::Payload;

/// Time that the check of the target before the run may take.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
const DEFAULT_DURATION: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Server under load, http://host:port or grpc://host:port
    #[arg(long)]
    target: String,
    /// Model to ask
    #[arg(long)]
    model: String,
    #[command(flatten)]
    payload: Payload,
    /// Mean requests/s
    #[arg(long, allow_negative_numbers = true, required_unless_present = "trace")]
    rate: Option<f64>,
    /// Distribution of arrivals over time: constant, poisson, bursts or
    /// bursts:RATIO:MEAN_ON_MS:MEAN_OFF_MS
    #[arg(long, default_value_t = Arrivals::Poisson)]
    arrivals: Arrivals,
    /// File of send times, one a line in seconds from the start, plain or .gz, instead of --rate
    /// and --arrivals
    #[arg(long, conflicts_with_all = ["rate", "arrivals"])]
    trace: Option<PathBuf>,
    /// Speed of the trace, as a multiple of the recorded one
    #[arg(
        long,
        default_value_t = 1.0,
        allow_negative_numbers = true,
        requires = "trace"
    )]
    trace_scale: f64,
    /// Seconds to send for [default: 10, or all of the trace]
    #[arg(long, allow_negative_numbers = true, conflicts_with = "requests")]
    duration: Option<f64>,
    /// Requests to send, instead of --duration
    #[arg(long)]
    requests: Option<usize>,
    /// Seed of the schedule and of the order of rows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Form of the tensors: binary or json over HTTP, grpc over gRPC [default: binary, or grpc]
    #[arg(long)]
    encoding: Option<WireEncoding>,
    /// Milliseconds after which a request is given up
    #[arg(long, default_value_t = 5000)]
    timeout_ms: u64,
    /// Accept reconstructed answers [default: the server decides]
    #[arg(long, action = ArgAction::Set)]
    allow_approximate: Option<bool>,
    /// Milliseconds that the server has for each request [default: the server decides]
    #[arg(long)]
    deadline_ms: Option<u64>,
    /// Threads that send and receive
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    files: ReportFiles,
    /// Write a line for each request as CSV
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Write the latency distribution in HdrHistogram's text form
    #[arg(long)]
    hgrm: Option<PathBuf>,
    /// Write the latency of each second as an HdrHistogram interval log
    #[arg(long)]
    hlog: Option<PathBuf>,
    /// Objective that the run has to meet, for exit code 0: p99.9=30ms, mean=5ms, failed=0.1%,
    /// accuracy=85% (repeatable)
    #[arg(long)]
    slo: Vec<Slo>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let runtime = runtime(args.threads)?;
    let (report, recording, started) = runtime.block_on(async {
        let Prepared {
            plan,
            transport,
            settings,
        } = prepare(args).await.map_err(bad_input)?;
        let started = SystemTime::now();
        let recording = drive(&plan, transport).await.map_err(failed)?;
        Ok((report::summarise(settings, &recording), recording, started))
    })?;
    let page = || Some(report::run_page(&report, &recording));
    let recorded = write_recording(args.recordings(), &recording, started);
    let written = recorded.and(args.files.write(&report, page));
    let missed = report::check(&args.slo, SloFigures::from(&report));
    finish(&report, written, report.partial, &missed)
}

/// A runtime whose requests may have as many connections as the system allows.
pub(crate) fn runtime(threads: usize) -> Result<Runtime, Error> {
    allow_many_connections();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(failed)
}

impl Args {
    /// Paths of the CSV file, the distribution and the interval log.
    fn recordings(&self) -> [Option<&Path>; 3] {
        [&self.csv, &self.hgrm, &self.hlog].map(Option::as_deref)
    }
}

struct Prepared {
    plan: Plan,
    transport: AnyTransport,
    settings: Settings,
}

/// Checks all that was given, and the target last.
async fn prepare(args: &Args) -> anyhow::Result<Prepared> {
    ensure!(
        args.timeout_ms > 0,
        "timeout 0 leaves no time for an answer; give a positive --timeout-ms"
    );
    ensure!(
        args.deadline_ms != Some(0),
        "deadline 0 leaves no time for an answer; give a positive --deadline-ms"
    );
    args.files.check()?;
    for path in args.recordings().into_iter().flatten() {
        check_writable(path)?;
    }
    let (schedule, trace) = schedule(args)?;
    let rows = args.payload.load()?;
    let target: TargetUrl = args.target.parse()?;
    let usual = if target.is_grpc() {
        WireEncoding::Grpc
    } else {
        WireEncoding::Binary
    };
    let encoding = args.encoding.unwrap_or(usual);
    let (address, metadata) = target.metadata(&args.model, CHECK_LIMIT).await?;
    let options = RequestOptions {
        encoding,
        allow_approximate: args.allow_approximate,
        deadline: args.deadline_ms.map(Duration::from_millis),
    };
    let bodies = Bodies::encode(&rows, &metadata, options, schedule.len(), args.seed)?;
    let plan = Plan {
        schedule: Arc::new(schedule),
        bodies: Arc::new(bodies),
        timeout: Duration::from_millis(args.timeout_ms),
    };
    let transport = AnyTransport::new(&target, address, &args.model, encoding)?;
    let settings = settings(args, encoding, &rows, &plan.schedule, trace);
    Ok(Prepared {
        plan,
        transport,
        settings,
    })
}

fn schedule(args: &Args) -> anyhow::Result<(Schedule, Option<TraceSettings>)> {
    let length = length(args)?;
    if let Some(path) = &args.trace {
        let trace = Trace::load(path, args.trace_scale)?;
        let settings = TraceSettings {
            file: path.display().to_string(),
            sha256: trace.sha256().to_owned(),
            times: trace.times_s().len(),
            scale: args.trace_scale,
        };
        return Ok((Schedule::of_trace(&trace, length)?, Some(settings)));
    }
    let rate = args
        .rate
        .context("no rate; give --rate in requests/s, or --trace")?;
    let length = length.unwrap_or(Length::Duration(DEFAULT_DURATION));
    Ok((
        Schedule::plan(args.arrivals, rate, length, args.seed)?,
        None,
    ))
}

fn length(args: &Args) -> anyhow::Result<Option<Length>> {
    if let Some(requests) = args.requests {
        return Ok(Some(Length::Requests(requests)));
    }
    let Some(seconds) = args.duration else {
        return Ok(None);
    };
    Duration::try_from_secs_f64(seconds)
        .map(|duration| Some(Length::Duration(duration)))
        .map_err(|_| {
            anyhow!(
                "duration {seconds} is no time; give --duration as a positive number of seconds"
            )
        })
}

const ENDING: &str = "ending: waiting for answers; Ctrl-C again leaves at once";

async fn drive(plan: &Plan, transport: AnyTransport) -> anyhow::Result<Recording> {
    let progress = Arc::new(Progress::new(&plan.schedule));
    let stop = Stop::default();
    let shown = Arc::clone(&progress);
    let live = Live::start(move || run_status(&shown.snapshot()));
    let _interrupts = stop_on_interrupt(&stop, live.notes(), ENDING)?;
    let transport = Arc::new(transport);
    let run = parapet_loadgen::run::run(plan, transport, KernelPacer, progress, &stop);
    run.await.context("cannot pace requests")
}

fn settings(
    args: &Args,
    encoding: WireEncoding,
    rows: &Rows,
    schedule: &Schedule,
    trace: Option<TraceSettings>,
) -> Settings {
    let (images, labels) = rows.names();
    Settings {
        target: args.target.clone(),
        model: args.model.clone(),
        seed: args.seed,
        arrivals: trace.is_none().then_some(args.arrivals),
        trace,
        rate: args.rate.unwrap_or_else(|| schedule.mean_rate()),
        timeout_ms: args.timeout_ms,
        encoding,
        allow_approximate: args.allow_approximate,
        deadline_ms: args.deadline_ms,
        images,
        labels,
    }
}

/// Every request in flight has a connection; the system's default limit of 1024 open files
/// is soon met.
fn allow_many_connections() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Refused, connections beyond the limit fail and are counted as such.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
