//! `parapet-loadgen run` and `diff` against a server in this process.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/program.rs"]
mod program;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use common::{Act, Behaviour};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_loadgen::report::{RunReport, SCHEMA};
use parapet_loadgen::target::Provenance;
use program::{Ended, cases, changed, command, run_beside};
use tempfile::TempDir;

const DEFAULTS: &str = "--model digits --images images --labels labels --rate 1000 \
    --json report.json --csv requests.csv";

struct Setting {
    folder: TempDir,
    target: String,
}

impl Setting {
    async fn new(behaviour: Behaviour) -> (Self, Arc<AtomicUsize>) {
        let (address, requests) = common::start(behaviour).await;
        (Self::at("http", address), requests)
    }

    fn at(scheme: &str, address: SocketAddr) -> Self {
        let folder = TempDir::new().unwrap();
        common::write_data(folder.path(), 20);
        let target = format!("{scheme}://{address}");
        Self { folder, target }
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.folder.path().join(name), contents).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Runs the program; `changes` win over the default arguments.
    async fn run(&self, changes: &str) -> Ended {
        let defaults = format!("--target {} {DEFAULTS}", self.target);
        let line = changed(&defaults, changes);
        // A trace stands in for the rate, unless both are asked for.
        let line = match changes.contains("--trace ") && !changes.contains("--rate") {
            true => line.replace("--rate 1000", ""),
            false => line,
        };
        run_beside(self.folder.path(), &format!("run {line}")).await
    }

    fn report(&self) -> RunReport {
        serde_json::from_str(&self.read("report.json")).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_go_over_grpc_as_well() {
    let (address, requests) = common::grpc::start(|number, request| {
        assert_eq!(request.parameters["timeout"], 4_000_000);
        match number % 10 {
            0 | 1 => Act::WrongReconstruction,
            2 => Act::Refuse(StatusCode::SERVICE_UNAVAILABLE),
            3 => Act::Never,
            _ => Act::Exact,
        }
    })
    .await;
    let setting = Setting::at("grpc", address);
    let changes = "--requests 100 --timeout-ms 1000 --deadline-ms 4000";
    setting.run(changes).await.succeeded();
    assert_eq!(requests.load(Ordering::SeqCst), 100);
    let report = setting.report();
    let counts = report.counts;
    let ends = (counts.answered, counts.failed, counts.unanswered);
    assert_eq!(ends, (80, 10, 10));
    assert_eq!(report.errors, [("grpc-14".to_owned(), 10)].into());
    let [exact, reconstructed] = [Provenance::Exact, Provenance::Reconstructed]
        .map(|provenance| &report.provenance[&provenance]);
    assert_eq!((exact.count, reconstructed.count), (60, 20));
    assert!(exact.accuracy.unwrap().accuracy > 0.99);
    assert!(reconstructed.accuracy.unwrap().accuracy < 0.01);

    for (changes, says) in [
        ("--encoding json", "cannot be sent json"),
        ("--model others", "serves no model \"others\""),
        ("--target grpc://127.0.0.1:1", "unreachable"),
        ("--target grpc://localhost", "grpc://host:port"),
    ] {
        setting.run(changes).await.refused(says);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_request_is_accounted_for() {
    let (setting, requests) = Setting::new(|number, request| {
        assert_eq!(request.parameters["allow_approximate"], true);
        assert_eq!(request.parameters["timeout"], 4_000_000);
        match number % 10 {
            0 | 1 => Act::WrongReconstruction,
            2 => Act::Refuse(StatusCode::TOO_MANY_REQUESTS),
            3 => Act::Garble,
            4 => Act::Never,
            _ => Act::Exact,
        }
    })
    .await;
    let changes = "--requests 200 --timeout-ms 300 --allow-approximate true --deadline-ms 4000 \
        --html run.html";
    let ended = setting.run(changes).await.succeeded();
    assert_eq!(requests.load(Ordering::SeqCst), 200);

    let report = setting.report();
    assert_eq!(report.schema, SCHEMA);
    assert!(!report.partial);
    let counts = report.counts;
    assert_eq!((counts.planned, counts.sent, counts.unsent), (200, 200, 0));
    let ends = (counts.answered, counts.failed, counts.unanswered);
    assert_eq!(ends, (140, 40, 20));
    let errors = ["http-429", "invalid-answer"].map(|kind| (kind.to_owned(), 20));
    assert_eq!(report.errors, errors.into());
    let [exact, reconstructed] = [Provenance::Exact, Provenance::Reconstructed]
        .map(|provenance| &report.provenance[&provenance]);
    assert_eq!((exact.count, reconstructed.count), (100, 40));
    assert_eq!(exact.accuracy.unwrap().accuracy, 1.0);
    assert_eq!(reconstructed.accuracy.unwrap().accuracy, 0.0);
    assert_eq!(reconstructed.mean_confidence, Some(0.75));
    let all = report.latency.all.unwrap();
    assert_eq!((all.count, report.latency.answered.unwrap().count), (200, 140));
    let timed = "what has no answer counts as the timeout";
    assert!(all.p90 >= 300.0, "{timed}: {all:?}");

    let csv = setting.read("requests.csv");
    assert_eq!(csv.lines().count(), 201);
    assert_eq!(csv.matches(",timeout,").count(), 20);
    assert_eq!(csv.matches(",200,reconstructed,false,").count(), 40);
    let summary = "planned: 200\n  sent: 200\n  answered: 140\n  failed: 40\n  unanswered: 20";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        lines
    };
    let shown = sorted(&ended.stdout);
    assert!(sorted(summary).iter().all(|line| shown.contains(line)), "{shown:?}");
    let files = std::fs::read_dir(setting.folder.path()).unwrap().count();
    assert_eq!(files, 5, "no other file is left");
    assert!(setting.read("run.html").ends_with("</html>\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn objectives_set_the_exit_code() {
    let (setting, _) = Setting::new(|_, _| Act::WrongReconstruction).await;
    let met = "--requests 30 --slo p50=10s --slo failed=0%";
    setting.run(met).await.succeeded();
    let objectives = "--requests 30 --slo failed=0% --slo accuracy=50%";
    let missed = setting.run(objectives).await;
    assert_eq!(missed.code, Some(1));
    let says = "objective accuracy 50 % missed: 0 %";
    assert!(missed.stderr.contains(says), "{}", missed.stderr);
    let wrong = setting.run("--slo p99=fast").await;
    wrong.refused("\"fast\" is no time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tensors_travel_as_json_as_well() {
    let (setting, _) = Setting::new(|_, request| {
        assert!(!request.wants_binary("scores"));
        Act::Exact
    })
    .await;
    let changes = "--requests 30 --encoding json --arrivals constant";
    setting.run(changes).await.succeeded();
    assert_eq!(setting.report().accuracy.unwrap().judged, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_trace_says_when() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let times: String = (0..30).map(|i| format!("{},x\n", f64::from(i) / 10.0)).collect();
    setting.write("trace.csv", format!("time,user\n{times}"));
    let changes = "--trace trace.csv --trace-scale 20 --requests 21";
    let shown = setting.run(changes).await.succeeded().stdout;
    assert_eq!(requests.load(Ordering::SeqCst), 21);
    let settings = setting.report().settings;
    let trace = settings.trace.unwrap();
    let found = (trace.file.as_str(), trace.times, trace.scale);
    assert_eq!(found, ("trace.csv", 30, 20.0));
    assert_eq!((trace.sha256.len(), settings.arrivals), (64, None));
    assert!((settings.rate - 210.0).abs() < 1e-6, "{}", settings.rate);
    assert_eq!(setting.read("requests.csv").lines().count(), 22);
    for says in ["trace file: trace.csv", "trace times: 30", "trace scale: 20"] {
        assert!(shown.contains(says), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_interrupted_run_reports_what_it_has() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let line = format!(
        "run --target {} --model digits --images images --rate 100 --duration 600 --json \
         report.json",
        setting.target
    );
    let mut command = tokio::process::Command::from(command(setting.folder.path(), &line));
    command.stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    while requests.load(Ordering::SeqCst) < 5 {
        tokio::task::yield_now().await;
    }
    let id = Pid::from_raw(child.id().unwrap().try_into().unwrap());
    kill(id, Signal::SIGINT).unwrap();
    let ended = Ended::from(child.wait_with_output().await.unwrap());
    assert_eq!(ended.code, Some(130));
    let report = setting.report();
    assert!(report.partial && ended.stdout.contains("PARTIAL"));
    let counts = report.counts;
    assert_eq!(counts.planned - counts.sent, counts.unsent);
    assert_eq!(report.accuracy, None);
    assert!(counts.sent >= 5 && counts.unsent > 50_000);
    let all = report.latency.all.unwrap();
    let due = counts.sent as u64 + 2;
    assert!(all.count <= due, "not due does not count: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bad_input_is_one_line_exit_code_2_and_no_report() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let small = b"\0\0\x08\x03\0\0\0\x14\0\0\0\x01\0\0\0\x01aaaaaaaaaaaaaaaaaaaa";
    setting.write("small", small);
    let cut = b"\0\0\x08\x03\0\0\0\x14\0\0\0\x04\0\0\0\x04aaa";
    setting.write("truncated", cut);
    setting.write("damaged.gz", b"\x1f\x8b\x08\0\0\0");
    setting.write("few", b"\0\0\x08\x01\0\0\0\x02ab");
    for (changes, says) in cases(
        r#"
--rate 0 => rate 0 is not a positive number
--rate -3 => rate -3 is not
--rate NaN => rate NaN is not
--arrivals bursts --rate 0.0001 => at 0.0001 requests/s, bursts:5:200:800 has next to no
--duration 0 => the run is empty
--duration -1 => '--duration <DURATION>': -1 is no time
--requests 0 => the run is empty
--timeout-ms 0 => '--timeout-ms <TIMEOUT_MS>': 0 is not in 1..
--requests many => invalid value 'many' for '--requests <REQUESTS>'
--images small => has shape [-1, 1, 4, 4] but the images are [1, 1]
--images truncated => truncated or damaged
--images damaged.gz => truncated or damaged gzip
--images nowhere => cannot read it
--images labels => labels: has 1 axes
--labels few => has 20 samples but few has 2 labels
--model unknown => serves no model "unknown"
--target http://127.0.0.1:1 => unreachable
--target 127.0.0.1:1 => is not an address
--json missing/report.json => its folder does not exist
"#,
    ) {
        refused(&setting, changes, says).await;
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bad_trace_is_one_line_exit_code_2_and_no_report() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    setting.write("few", b"\0\0\x08\x01\0\0\0\x02ab");
    setting.write("word", "seconds\n0\nsoon\n");
    setting.write("negative", "-0.5\n0\n");
    setting.write("falling", "0\n0.2\n0.1\n");
    setting.write("stamps", "1700000000\n");
    setting.write("header", "seconds\n");
    setting.write("long", "0".repeat(5000));
    setting.write("cut.gz", b"\x1f\x8b\x08\0\0\0");
    for (trace, says) in cases(
        r#"
word => word: line 3: "soon" is not a number; write one time a line
negative => negative: line 1: -0.5 is negative; count from the start
falling => falling: line 3: 0.1 comes after 0.2, which is later; sort the times
stamps => stamps: line 1: 1700000000 is 19676 days into the run
header => header: holds no times; write one a line
long => long: line 1: longer than 4096 bytes; write one time a line
cut.gz => cut.gz: line 1: truncated or damaged gzip
nowhere => nowhere: cannot read it
few --rate 5 => '--trace <TRACE>' cannot be used with '--rate <RATE>'; see --help
few --trace-scale 0 => trace scale 0 is not a positive number
"#,
    ) {
        refused(&setting, &format!("--trace {trace}"), says).await;
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

async fn refused(setting: &Setting, changes: &str, says: &str) {
    setting.run(changes).await.refused(says);
    for file in ["report.json", "requests.csv"] {
        let path = setting.folder.path().join(file);
        assert!(!Path::new(&path).exists(), "{changes} wrote {file}");
    }
}
