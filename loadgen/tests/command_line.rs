//! The program against a server in this process.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use common::{Act, Behaviour};
use parapet_loadgen::report::{RunReport, SCHEMA};
use parapet_loadgen::target::Provenance;
use tempfile::TempDir;

struct Setting {
    folder: TempDir,
    target: String,
}

impl Setting {
    async fn new(behaviour: Behaviour) -> (Self, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
        let (address, requests) = common::start(behaviour).await;
        (Self::at(address), requests)
    }

    fn at(address: SocketAddr) -> Self {
        let folder = TempDir::new().unwrap();
        common::write_data(folder.path(), 20);
        Self {
            folder,
            target: format!("http://{address}"),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program; later arguments win over the usual ones.
    async fn run(&self, changes: &[&str]) -> Output {
        let usual = [
            ("--target", self.target.as_str()),
            ("--model", "digits"),
            ("--images", "images"),
            ("--labels", "labels"),
            ("--rate", "1000"),
            ("--json", "report.json"),
            ("--csv", "requests.csv"),
            ("--hgrm", "latency.hgrm"),
        ];
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
        command
            .current_dir(self.folder.path())
            .arg("run")
            .args(changes);
        let unwanted = |name: &str| {
            changes.contains(&name) || (name == "--rate" && changes.contains(&"--trace"))
        };
        for (name, value) in usual {
            if !unwanted(name) {
                command.args([name, value]);
            }
        }
        command.output().await.unwrap()
    }

    fn report(&self) -> RunReport {
        serde_json::from_slice(&std::fs::read(self.path("report.json")).unwrap()).unwrap()
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
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
    let setting = Setting {
        target: format!("grpc://{address}"),
        ..Setting::at(address)
    };
    let output = setting
        .run(&[
            "--requests",
            "100",
            "--timeout-ms",
            "1000",
            "--deadline-ms",
            "4000",
        ])
        .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(requests.load(Ordering::SeqCst), 100);
    let report = setting.report();
    let counts = report.counts;
    assert_eq!(
        (counts.answered, counts.failed, counts.unanswered),
        (80, 10, 10)
    );
    assert_eq!(report.errors, [("grpc-14".to_owned(), 10)].into());
    let [exact, reconstructed] = [Provenance::Exact, Provenance::Reconstructed]
        .map(|provenance| &report.provenance[&provenance]);
    assert_eq!((exact.count, reconstructed.count), (60, 20));
    assert!(
        exact.accuracy.unwrap().accuracy > 0.99 && reconstructed.accuracy.unwrap().accuracy < 0.01
    );

    for (changes, says) in [
        (vec!["--encoding", "json"], "cannot be sent json"),
        (vec!["--model", "others"], "serves no model \"others\""),
        (vec!["--target", "grpc://127.0.0.1:1"], "unreachable"),
        (vec!["--target", "grpc://localhost"], "grpc://host:port"),
    ] {
        let output = setting.run(&changes).await;
        let said = text(&output.stderr);
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{said}"
        );
        assert!(said.contains(says), "{said}");
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
    let output = setting
        .run(&[
            "--requests",
            "200",
            "--timeout-ms",
            "300",
            "--allow-approximate",
            "true",
            "--deadline-ms",
            "4000",
        ])
        .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(requests.load(Ordering::SeqCst), 200);

    let report = setting.report();
    assert_eq!(report.schema, SCHEMA);
    assert!(!report.partial);
    let counts = report.counts;
    assert_eq!((counts.planned, counts.sent, counts.unsent), (200, 200, 0));
    assert_eq!(
        (counts.answered, counts.failed, counts.unanswered),
        (140, 40, 20)
    );
    assert_eq!(
        report.errors,
        [
            ("http-429".to_owned(), 20),
            ("invalid-answer".to_owned(), 20)
        ]
        .into()
    );
    let [exact, reconstructed] = [Provenance::Exact, Provenance::Reconstructed]
        .map(|provenance| &report.provenance[&provenance]);
    assert_eq!((exact.count, reconstructed.count), (100, 40));
    assert_eq!(exact.accuracy.unwrap().accuracy, 1.0);
    assert_eq!(reconstructed.accuracy.unwrap().accuracy, 0.0);
    assert_eq!(reconstructed.mean_confidence, Some(0.75));
    let all = report.latency.all.unwrap();
    assert_eq!(
        (all.count, report.latency.answered.unwrap().count),
        (200, 140)
    );
    assert!(
        all.p90 >= 300.0,
        "what has no answer counts as the timeout: {all:?}"
    );

    let csv = std::fs::read_to_string(setting.path("requests.csv")).unwrap();
    assert_eq!(csv.lines().count(), 201);
    assert_eq!(csv.matches(",timeout,").count(), 20);
    assert_eq!(csv.matches(",200,reconstructed,false,").count(), 40);
    assert!(
        std::fs::read_to_string(setting.path("latency.hgrm"))
            .unwrap()
            .contains("Total count    =          140")
    );
    let summary = text(&output.stdout);
    assert!(
        summary.contains("planned 200  sent 200  answered 140  failed 40  unanswered 20"),
        "{summary}"
    );
    assert!(
        std::fs::read_dir(setting.folder.path()).unwrap().count() == 5,
        "no other file is left"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn objectives_set_the_exit_code() {
    let (setting, _) = Setting::new(|_, _| Act::WrongReconstruction).await;
    let met = setting
        .run(&[
            "--requests",
            "30",
            "--slo",
            "p50=10s",
            "--slo",
            "failed=0%",
            "--html",
            "run.html",
            "--hlog",
            "run.hlog",
        ])
        .await;
    assert_eq!(met.status.code(), Some(0), "{}", text(&met.stderr));
    assert!(
        std::fs::read_to_string(setting.path("run.html"))
            .unwrap()
            .ends_with("</html>\n")
    );
    let log = std::fs::read_to_string(setting.path("run.hlog")).unwrap();
    assert!(
        log.starts_with("#[Histogram log format version 1.3]"),
        "{log}"
    );
    let missed = setting
        .run(&[
            "--requests",
            "30",
            "--slo",
            "failed=0%",
            "--slo",
            "accuracy=50%",
        ])
        .await;
    assert_eq!(missed.status.code(), Some(1));
    assert!(
        text(&missed.stderr).contains("objective accuracy 50 % missed: 0 %"),
        "{}",
        text(&missed.stderr)
    );
    let refused = setting.run(&["--slo", "p99=fast"]).await;
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("\"fast\" is no time"),
        "{}",
        text(&refused.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reports_can_be_compared() {
    let (setting, _) = Setting::new(|_, _| Act::Exact).await;
    setting.run(&["--requests", "40"]).await;
    setting
        .run(&["--requests", "50", "--seed", "2", "--json", "other.json"])
        .await;
    let write = |name: &str, contents: &str| std::fs::write(setting.path(name), contents).unwrap();
    write("text.json", "nothing");
    write("alien.json", "{\"schema\": \"alien/1\"}");
    write("empty.json", "{\"schema\": \"parapet-loadgen/run/1\"}");
    let diff = async |second: &str| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
        command
            .current_dir(setting.folder.path())
            .args(["diff", "report.json", second])
            .output()
            .await
            .unwrap()
    };
    let output = diff("other.json").await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for expected in [
        "note: setting seed differs: 1 and 2",
        "p99.9, ms",
        "accuracy, %",
        "overlap",
    ] {
        assert!(
            text(&output.stdout).contains(expected),
            "{expected}: {}",
            text(&output.stdout)
        );
    }
    for (file, message) in [
        ("text.json", "text.json: is no report"),
        (
            "alien.json",
            "alien.json: has the schema alien/1, which is not known",
        ),
        ("empty.json", "empty.json: is no report (missing field"),
        ("nowhere.json", "nowhere.json: cannot read it"),
    ] {
        let output = diff(file).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(message) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tensors_travel_as_json_as_well() {
    let (setting, _) = Setting::new(|_, request| {
        assert!(!request.wants_binary("scores"));
        Act::Exact
    })
    .await;
    let output = setting
        .run(&[
            "--requests",
            "30",
            "--encoding",
            "json",
            "--arrivals",
            "constant",
        ])
        .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(setting.report().accuracy.unwrap().judged, 30);
}

/// An array as NumPy writes it.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), data].concat()
}

fn write_npz(path: &Path, arrays: &[(&str, Vec<u8>)]) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, contents) in arrays {
        zip.start_file(
            format!("{name}.npy"),
            zip::write::SimpleFileOptions::default(),
        )
        .unwrap();
        std::io::Write::write_all(&mut zip, contents).unwrap();
    }
    zip.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_npz_file_has_images_and_labels() {
    let (setting, _) = Setting::new(|_, _| Act::Exact).await;
    let x: Vec<u8> = (0..16)
        .map(|at| if at == 0 { 3.0_f32 / 255.0 } else { 0.5 })
        .flat_map(f32::to_le_bytes)
        .collect();
    let [x, x2] = [
        npy("<f4", "(1, 4, 4)", &x),
        npy("|u1", "(1, 4, 4)", &[3; 16]),
    ];
    let y = npy("<i8", "(1,)", &3_i64.to_le_bytes());
    write_npz(
        &setting.path("one.npz"),
        &[("x", x.clone()), ("y", y.clone())],
    );
    write_npz(
        &setting.path("two.npz"),
        &[("x", x.clone()), ("x2", x2), ("y", y)],
    );
    write_npz(
        &setting.path("minus.npz"),
        &[("x", x), ("y", npy("<i4", "(1,)", &(-1_i32).to_le_bytes()))],
    );
    write_npz(
        &setting.path("nan.npz"),
        &[("x", npy(">f8", "(1, 1)", &f64::NAN.to_be_bytes()))],
    );
    write_npz(
        &setting.path("short.npz"),
        &[("x", npy("<f4", "(9, 9)", &[0; 8]))],
    );
    std::fs::write(setting.path("damaged.npz"), b"PK\x03\x04 and no more").unwrap();
    let run = async |changes: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
        command
            .current_dir(setting.folder.path())
            .args(["run", "--target", &setting.target]);
        command.args([
            "--model",
            "digits",
            "--rate",
            "1000",
            "--requests",
            "5",
            "--json",
            "report.json",
        ]);
        command.args(changes).output().await.unwrap()
    };
    for (changes, images) in [
        (&["--images", "one.npz"][..], "one.npz[x]"),
        (
            &[
                "--images",
                "two.npz",
                "--images-key",
                "x2",
                "--labels-key",
                "y",
            ],
            "two.npz[x2]",
        ),
    ] {
        let output = run(changes).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = setting.report();
        assert_eq!(
            (
                report.accuracy.unwrap().correct,
                report.settings.images.as_str()
            ),
            (5, images)
        );
    }
    for (changes, message) in [
        (
            &["--images", "two.npz"][..],
            "has 2 arrays that could be images (u8, f32 or f64 with 2 or more axes)",
        ),
        (
            &["--images", "one.npz", "--images-key", "z"],
            "has no array \"z\"; give --images-key as one of: \"x\" (<f4 [1, 4, 4])",
        ),
        (
            &["--images", "one.npz", "--images-key", "y"],
            "array \"y\" (<i8 [1]) cannot be images",
        ),
        (&["--images", "minus.npz"], "array \"y\": element 0 is -1"),
        (&["--images", "nan.npz"], "array \"x\": element 0 is NaN"),
        (
            &["--images", "short.npz"],
            "shape [9, 9] makes 324 bytes, there are 8",
        ),
        (
            &["--images", "damaged.npz"],
            "damaged.npz: cannot read it as .npz",
        ),
        (
            &["--images", "images", "--images-key", "x"],
            "images: is no .npz file",
        ),
        (
            &["--images", "one.npz", "--labels", "nan.npz"],
            "has 0 arrays that could be labels",
        ),
        (
            &["--images", "one.npz", "--labels", "labels"],
            "has 1 samples but labels has 20 labels",
        ),
    ] {
        let output = run(changes).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{changes:?}: {stderr}");
        assert!(
            stderr.contains(message) && stderr.lines().count() == 1,
            "{changes:?}: {stderr}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_trace_says_when() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let times: Vec<String> = (0..30)
        .map(|i| format!("{},x", f64::from(i) / 10.0))
        .collect();
    std::fs::write(
        setting.path("trace.csv"),
        format!("time,user\n{}\n", times.join("\n")),
    )
    .unwrap();
    let output = setting
        .run(&[
            "--trace",
            "trace.csv",
            "--trace-scale",
            "20",
            "--requests",
            "21",
        ])
        .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(requests.load(Ordering::SeqCst), 21);
    let settings = setting.report().settings;
    let trace = settings.trace.unwrap();
    assert_eq!(
        (trace.file.as_str(), trace.times, trace.scale),
        ("trace.csv", 30, 20.0)
    );
    assert_eq!((trace.sha256.len(), settings.arrivals), (64, None));
    assert!((settings.rate - 210.0).abs() < 1e-6, "{}", settings.rate);
    let csv = std::fs::read_to_string(setting.path("requests.csv")).unwrap();
    assert_eq!(csv.lines().count(), 22);
    let shown = text(&output.stdout);
    assert!(
        shown.contains("trace trace.csv (30 times, SHA-256")
            && shown.contains("at 20 times its speed"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_interrupted_run_reports_what_it_has() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_parapet-loadgen"));
    command.current_dir(setting.folder.path());
    command.args([
        "run",
        "--target",
        &setting.target,
        "--model",
        "digits",
        "--images",
        "images",
    ]);
    command.args([
        "--rate",
        "100",
        "--duration",
        "600",
        "--json",
        "report.json",
    ]);
    let child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while requests.load(Ordering::SeqCst) < 5 {
        tokio::task::yield_now().await;
    }
    let id = nix::unistd::Pid::from_raw(child.id().unwrap().try_into().unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = setting.report();
    assert!(report.partial && text(&output.stdout).contains("PARTIAL"));
    assert_eq!(
        (report.counts.planned - report.counts.sent, report.accuracy),
        (report.counts.unsent, None)
    );
    assert!(report.counts.sent >= 5 && report.counts.unsent > 50_000);
    let all = report.latency.all.unwrap();
    assert!(
        all.count <= report.counts.sent as u64 + 2,
        "what was not yet due does not count: {all:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bad_input_is_one_line_exit_code_2_and_no_report() {
    let (setting, requests) = Setting::new(|_, _| Act::Exact).await;
    let write = |name: &str, contents: &[u8]| std::fs::write(setting.path(name), contents).unwrap();
    write(
        "small",
        b"\0\0\x08\x03\0\0\0\x14\0\0\0\x01\0\0\0\x01aaaaaaaaaaaaaaaaaaaa",
    );
    write(
        "truncated",
        b"\0\0\x08\x03\0\0\0\x14\0\0\0\x04\0\0\0\x04aaa",
    );
    write("damaged.gz", b"\x1f\x8b\x08\0\0\0");
    write("few", b"\0\0\x08\x01\0\0\0\x02ab");
    write("word", b"seconds\n0\nsoon\n");
    write("negative", b"-0.5\n0\n");
    write("falling", b"0\n0.2\n0.1\n");
    write("stamps", b"1700000000\n");
    write("header", b"seconds\n");
    write("long", &b"0".repeat(5000));
    write("cut.gz", b"\x1f\x8b\x08\0\0\0");
    let cases: &[(&[&str], &str)] = &[
        (&["--rate", "0"], "rate 0 is not a positive number"),
        (&["--rate", "-3"], "rate -3 is not"),
        (&["--rate", "NaN"], "rate NaN is not"),
        (
            &["--arrivals", "bursts", "--rate", "0.0001"],
            "at 0.0001 requests/s, bursts:5:200:800 has next to no",
        ),
        (&["--duration", "0"], "the run is empty"),
        (&["--duration", "-1"], "duration -1 is no time"),
        (&["--requests", "0"], "the run is empty"),
        (&["--timeout-ms", "0"], "timeout 0"),
        (
            &["--trace", "word"],
            "word: line 3: \"soon\" is not a number; write one time a line",
        ),
        (
            &["--trace", "negative"],
            "negative: line 1: -0.5 is negative; count from the start",
        ),
        (
            &["--trace", "falling"],
            "falling: line 3: 0.1 comes after 0.2, which is later; sort the times",
        ),
        (
            &["--trace", "stamps"],
            "stamps: line 1: 1700000000 is 19676 days into the run",
        ),
        (
            &["--trace", "header"],
            "header: holds no times; write one a line",
        ),
        (
            &["--trace", "long"],
            "long: line 1: longer than 4096 bytes; write one time a line",
        ),
        (
            &["--trace", "cut.gz"],
            "cut.gz: line 1: truncated or damaged gzip",
        ),
        (&["--trace", "nowhere"], "nowhere: cannot read it"),
        (
            &["--trace", "few", "--rate", "5"],
            "'--trace <TRACE>' cannot be used with '--rate <RATE>'; see --help",
        ),
        (
            &["--requests", "many"],
            "invalid value 'many' for '--requests <REQUESTS>'",
        ),
        (
            &["--trace", "few", "--trace-scale", "0"],
            "trace scale 0 is not a positive number",
        ),
        (
            &["--images", "small"],
            "has shape [-1, 1, 4, 4] but the images are [1, 1]",
        ),
        (&["--images", "truncated"], "truncated or damaged"),
        (&["--images", "damaged.gz"], "truncated or damaged gzip"),
        (&["--images", "nowhere"], "cannot read it"),
        (&["--images", "labels"], "labels: has 1 axes"),
        (&["--labels", "few"], "has 20 samples but few has 2 labels"),
        (&["--model", "unknown"], "serves no model \"unknown\""),
        (&["--target", "http://127.0.0.1:1"], "unreachable"),
        (&["--target", "127.0.0.1:1"], "is not an address"),
        (
            &["--json", "missing/report.json"],
            "its folder does not exist",
        ),
    ];
    for (changes, message) in cases {
        let output = setting.run(changes).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{changes:?}: {stderr}");
        assert!(stderr.contains(message), "{changes:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{changes:?}: {stderr}");
        for file in ["report.json", "requests.csv", "latency.hgrm"] {
            assert!(
                !Path::new(&setting.path(file)).exists(),
                "{changes:?} wrote {file}"
            );
        }
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}
