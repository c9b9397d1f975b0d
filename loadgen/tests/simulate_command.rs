//! `parapet-loadgen simulate` as a program.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "common/program.rs"]
mod program;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use parapet_loadgen::simulate::{SCHEMA, SimulationReport};
use program::{Ended, cases, changed, command};
use tempfile::TempDir;

const DEFAULTS: &str = "--instances 12 --redundant-instances 6 --rate 270 --service-time \
    constant:18 --straggle 0.01:15:45";

/// Simulates; `changes` win over the default arguments.
fn run(folder: &TempDir, changes: &str) -> Ended {
    simulate(folder, &changed(DEFAULTS, changes))
}

/// Simulates with these arguments alone.
fn simulate(folder: &TempDir, arguments: &str) -> Ended {
    program::run(folder.path(), &format!("simulate {arguments}"))
}

fn report(path: &Path) -> SimulationReport {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn strategies_are_compared_in_every_form() {
    let folder = TempDir::new().unwrap();
    let changes = "--json report.json --html report.html --strategy coded,hedge,equal_resources \
        --queries 20000";
    let shown = run(&folder, changes).succeeded().stdout;
    for expected in ["p99.9", "parity 0", "hedge"] {
        assert!(shown.contains(expected), "{shown}");
    }
    let report = report(&folder.path().join("report.json"));
    assert_eq!((report.schema.as_str(), report.partial), (SCHEMA, false));
    let instances: Vec<usize> = report.strategies.iter().map(|it| it.instances).collect();
    assert_eq!(instances, [18, 18, 18]);
    let comparison = report.comparison.unwrap();
    let found = (comparison.baseline.as_str(), comparison.rounds);
    assert_eq!(found, ("equal_resources", 20));
    let coded = &comparison.strategies[0];
    // The two ways to the figures agree, but for the histogram's three digits.
    let all = report.strategies[0].latency.all.unwrap();
    assert!((coded.latency.p99 / all.p99 - 1.0).abs() < 0.002);
    assert_eq!(coded.latency.count, all.count);
    assert!(coded.gap_ratio.unwrap().value > 1.5);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("report.html").contains("equal_resources"));
}

#[test]
fn a_file_says_what_flags_do_not() {
    let folder = TempDir::new().unwrap();
    let experiment = r#"
model = "m"
rate = 200
requests = 2000
baseline = "none"
encoding = "json"
instances = { deployed = 12, redundant = 4 }
faults = { seed = 5, service_time = { distribution = "constant", ms = 10.0 } }
[simulation.network]
client = { constant_ms = 0.5 }
to_instance = { constant_ms = 0 }
to_frontend = { constant_ms = 0 }
[[strategies]]
name = "coding"
settings = { kind = "coded", encoder = "sum", k = 3 }
parity_models = ["p"]
[[strategies]]
name = "none"
settings = { kind = "none" }
"#;
    std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
    let arguments = "--experiment experiment.toml --rate 100 --json report.json";
    let ended = simulate(&folder, arguments).succeeded();
    let report = report(&folder.path().join("report.json"));
    assert_eq!((report.settings.rate, report.settings.requests), (100.0, 2000));
    let coding = &report.strategies[0];
    assert_eq!((coding.name.as_str(), coding.instances), ("coding", 16));
    assert_eq!(ended.stderr, "");
    let comparison = report.comparison.unwrap();
    let timeout_ms = comparison.settings.timeout_ms;
    let found = (comparison.baseline.as_str(), comparison.rounds, timeout_ms);
    assert_eq!(found, ("none", 10, 2000));
    let p50 = report.strategies[1].latency.all.unwrap().p50;
    assert!((p50 - 10.5).abs() < 0.02, "{p50}");
}

#[test]
fn the_experiments_of_real_clusters_are_simulated() {
    let experiment = |name: &str| format!("{}/experiments/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let folder = TempDir::new().unwrap();
    let strategies = "--strategy coded,none,coded:k=3 --queries 5000";
    let tail = format!("--experiment {} {strategies}", experiment("tail"));
    simulate(&folder, &tail).succeeded();
    let faults = format!("--experiment {} --json report.json", experiment("faults"));
    simulate(&folder, &faults).succeeded();
    let report = report(&folder.path().join("report.json"));
    let marks = report.comparison.unwrap().faults;
    let times = marks.iter().map(|mark| (mark.at_s, mark.until_s));
    let times: Vec<(f64, Option<f64>)> = times.collect();
    let block_s = 2000.0 / 270.0;
    let killed = (block_s + 1.5, Some(block_s + 4.5));
    assert_eq!(times, [(2.0, Some(3.0)), killed]);
    let simulated = &report.strategies;
    assert!(simulated.iter().all(|it| it.counts.failed == 0));
    assert!(simulated.iter().any(|it| it.retries > 0), "lost requests are sent again");
}

#[test]
fn bad_input_is_one_line_exit_code_2_and_no_report() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("bad.toml"), "rate = 5.0\nspeed = 3\n").unwrap();
    for (changes, says) in cases(
        r#"
--rate 0 => rate: 0; give a positive
--rate -1 => rate: -1
--rate NaN => rate: NaN
--instances 0 => instances 0; give at least one
--strategy coded:k=13 => k = 13 is more than the 12 instances
--strategy coded:k=1 => k: 1; give 2 to 64
--strategy coded:r=7 => needs at least 7 redundant instances and has 6
--strategy codde => unknown strategy "codde"; choose among equal_resources, none
--strategy coded,coded => is there twice
--queries 0 => queries: 0
--deadline-ms -5 => unexpected argument '-5'
--deadline-ms 0 => deadline: 0
--experiment nowhere.toml => cannot read the experiment
--experiment bad.toml => bad.toml: line 2: unknown field `speed`
--faults nowhere.toml => cannot read
--json missing/report.json => its folder does not exist
--html report.html --queries 5000000 => leave it out
--service-time constant:-1 => service_time.ms: -1
--straggle 1.5:1:2 => straggle.probability: 1.5
--straggle 0.5:-1:2 => straggle: -1 to 2 ms
"#,
    ) {
        run(&folder, &changed("--json r.json", changes)).refused(says);
        assert!(!folder.path().join("r.json").exists(), "{changes} wrote a report");
    }
    simulate(&folder, "--instances 2 --rate 5").refused("no service time");
}

#[test]
fn an_interrupted_simulation_reports_what_it_has() {
    let folder = TempDir::new().unwrap();
    let changes = "--strategy coded,none --queries 500000000 --json report.json";
    let line = format!("simulate {}", changed(DEFAULTS, changes));
    let mut child =
        command(folder.path(), &line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The first line of progress says that signals are listened for.
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("coded: simulated"), "{line}");
    let id = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    let started = std::time::Instant::now();
    let status = child.wait().unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(status.code(), Some(130));
    let report = report(&folder.path().join("report.json"));
    assert!(report.partial && report.strategies.len() == 1);
    let counts = report.strategies[0].counts;
    assert!(counts.answered > 0 && counts.unsent > 0);
}
