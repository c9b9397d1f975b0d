//! `parapet-loadgen run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgAction, value_parser};
use parapet_loadgen::payload::{RequestOptions, Rows, WireEncoding};
use parapet_loadgen::report::{self, Settings, Slo, TraceSettings};
use parapet_loadgen::run::{KernelPacer, Plan, Progress, Recording, Stop};
use parapet_loadgen::schedule::{Arrivals, Length, Schedule, Trace};
use parapet_loadgen::target::{AnyTransport, Target, TargetUrl};

use crate::files::{ReportFiles, check_writable, write_csv};
use crate::live::{show_progress, stop_on_interrupt};
use crate::{Error, FAILED, bad_input, finish, runtime};

const CHECK_LIMIT: Duration = Duration::from_secs(5);
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const ENDING: &str = "ending: waiting for answers; Ctrl-C again leaves at once";

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
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, requires = "trace")]
    trace_scale: f64,
    /// Seconds to send for [default: 10, or all of the trace]
    #[arg(
        long,
        allow_negative_numbers = true,
        conflicts_with = "requests",
        value_parser = parse_seconds
    )]
    duration: Option<Duration>,
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
    #[arg(long, default_value_t = 5000, value_parser = value_parser!(u64).range(1..))]
    timeout_ms: u64,
    /// Accept reconstructed answers [default: the server decides]
    #[arg(long, action = ArgAction::Set)]
    allow_approximate: Option<bool>,
    /// Milliseconds that the server has for each request [default: the server decides]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    deadline_ms: Option<u64>,
    /// Threads that send and receive
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    files: ReportFiles,
    /// Write a line for each request as CSV
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Objective that the run has to meet, for exit code 0: p99.9=30ms, mean=5ms, failed=0.1%,
    /// accuracy=85% (repeatable)
    #[arg(long)]
    slo: Vec<Slo>,
}

fn parse_seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds = text.parse().ok().map(Duration::try_from_secs_f64);
    let wrong = || anyhow!("{text} is no time; give a positive number of seconds");
    seconds.and_then(Result::ok).ok_or_else(wrong)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Payload {
    /// IDX file of images to send, plain or .gz
    #[arg(long)]
    images: PathBuf,
    /// IDX file of their classes, to report accuracy
    #[arg(long)]
    labels: Option<PathBuf>,
}

impl Payload {
    pub(crate) fn load(&self) -> anyhow::Result<Rows> {
        Rows::load(&self.images, self.labels.as_deref())
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let (report, recording) = runtime(args.threads)?.block_on(async {
        let (plan, transport, settings) = prepare(args).await.map_err(bad_input)?;
        let recording = drive(&plan, transport).await?;
        Ok::<_, Error>((report::summarise(settings, &recording), recording))
    })?;
    let recorded = args.csv.as_ref().map_or(Ok(()), |path| write_csv(path, &recording.records));
    let page = || Some(report::run_page(&report, &recording));
    let ended = finish(&report, recorded.and(args.files.write(&report, page)), report.partial)?;
    let missed = report::check(&args.slo, report.latency.all, report.counts, report.accuracy);
    for line in &missed {
        eprintln!("parapet-loadgen: {line}");
    }
    Ok(if missed.is_empty() || report.partial { ended } else { ExitCode::from(FAILED) })
}

async fn prepare(args: &Args) -> anyhow::Result<(Plan, AnyTransport, Settings)> {
    args.files.check()?;
    if let Some(path) = &args.csv {
        check_writable(path)?;
    }
    let (schedule, trace) = schedule(args)?;
    let rows = args.payload.load()?;
    let url: TargetUrl = args.target.parse()?;
    let usual = if url.grpc { WireEncoding::Grpc } else { WireEncoding::Binary };
    let encoding = args.encoding.unwrap_or(usual);
    let (target, metadata) = Target::find(&url, &args.model, CHECK_LIMIT).await?;
    let options = RequestOptions {
        encoding,
        timeout_ms: args.timeout_ms,
        allow_approximate: args.allow_approximate,
        deadline_ms: args.deadline_ms,
    };
    let transport = AnyTransport::new(&target, &args.model, encoding)?;
    let (images, labels) = rows.names.clone();
    let settings = Settings {
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
    };
    Ok((Plan::encode(schedule, &rows, &metadata, options, args.seed)?, transport, settings))
}

fn schedule(args: &Args) -> anyhow::Result<(Schedule, Option<TraceSettings>)> {
    let requests = args.requests.map(Length::Requests);
    let length = requests.or(args.duration.map(Length::Duration));
    if let Some(path) = &args.trace {
        let trace = Trace::load(path, args.trace_scale)?;
        let schedule = Schedule::of_trace(&trace, length)?;
        let settings = TraceSettings {
            file: path.display().to_string(),
            sha256: trace.sha256,
            times: trace.times_s.len(),
            scale: args.trace_scale,
        };
        return Ok((schedule, Some(settings)));
    }
    let rate = args.rate.context("no rate; give --rate in requests/s, or --trace")?;
    let length = length.unwrap_or(Length::Duration(DEFAULT_DURATION));
    Ok((Schedule::plan(args.arrivals, rate, length, args.seed)?, None))
}

async fn drive(plan: &Plan, transport: AnyTransport) -> anyhow::Result<Recording> {
    let progress = Arc::new(Progress::new(&plan.schedule));
    let stop = Stop::default();
    let shown = Arc::clone(&progress);
    let _progress = show_progress(move || shown.status());
    let _interrupts = stop_on_interrupt(&stop, ENDING)?;
    let run = parapet_loadgen::run::run(plan, Arc::new(transport), KernelPacer, progress, &stop);
    run.await.context("cannot pace requests")
}
