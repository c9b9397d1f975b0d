//! `parapet-loadgen compare` with frontends that run already.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/program.rs"]
mod program;

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use common::Act;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_loadgen::compare::CompareReport;
use program::{Ended, cases, command, run_beside};
use tempfile::TempDir;

async fn run(folder: &TempDir, arguments: &str) -> Ended {
    let line = format!("compare --images images --labels labels --json report.json {arguments}");
    run_beside(folder.path(), &line).await
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    common::write_data(folder.path(), 20);
    folder
}

fn report(folder: &Path) -> CompareReport {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap()
}

/// The planned times of each block's requests, as a CSV file has them, from the block's first.
fn planned(csv: &str, blocks: usize) -> Vec<Vec<i64>> {
    let times = csv.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap());
    let times: Vec<i64> = times.collect();
    let block = |block: &[i64]| block.iter().map(|time| time - block[0]).collect();
    times.chunks(times.len() / blocks).map(block).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn strategies_take_turns_on_one_schedule() {
    let folder = folder();
    let reconstruct = |number: usize, _: &_| {
        if number.is_multiple_of(5) { Act::WrongReconstruction } else { Act::Exact }
    };
    let (coded, coded_requests) = common::start_with_metrics(reconstruct).await;
    let (none, none_requests) = common::start(|_, _| Act::Exact).await;
    let arguments = format!(
        "--target none=http://{none} --target coded=http://{coded} --model digits --rate 2000 \
         --requests 40 --blocks 4 --warm-up 10 --repeats 0 --csv files"
    );
    let ended = run(&folder, &arguments).await.succeeded();
    for requests in [coded_requests, none_requests] {
        assert_eq!(requests.load(Ordering::SeqCst), 50);
    }
    let report = report(folder.path());
    let found = (report.baseline.as_str(), report.rounds, report.partial);
    assert_eq!(found, ("none", 4, false));
    let [none, coded] = &report.strategies[..] else { unreachable!("{report:?}") };
    assert_eq!((none.counts.answered, coded.counts.answered), (40, 40));
    let unknown = (none.instances, none.cost.extra_work, none.cost.redundancy);
    assert_eq!(unknown, (None, None, None));
    let known = (coded.instances, coded.cost.extra_work);
    assert_eq!(known, (Some(2), Some(0.5)));
    assert_eq!(none.accuracy.unwrap().accuracy, 1.0);
    assert!(coded.accuracy.unwrap().accuracy < 1.0);
    let given = &report.settings.notes["frontends that ran already"];
    assert!(given.contains(", coded at http://"));
    let stderr = ended.stderr;
    assert!(stderr.contains("block  4/4  coded"), "{stderr}");

    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let (none, coded) = (read("files/none.csv"), read("files/coded.csv"));
    assert_eq!(none.lines().count(), 41);
    assert_eq!(planned(&none, 4), planned(&coded, 4));
    assert!(coded.contains("reconstructed") && !none.contains("reconstructed"));
    let mut left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["files", "images", "labels", "report.json"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_block_in_which_the_generator_was_late_is_measured_again_and_counted_once() {
    let folder = folder();
    let (coded, requests) = common::start_with_metrics(|_, _| Act::Exact).await;
    // No generator keeps a schedule of ten million requests a second.
    let arguments = format!(
        "--target coded=http://{coded} --model digits --rate 10000000 --requests 1000 --blocks 2 \
         --warm-up 0 --repeats 3"
    );
    let ended = run(&folder, &arguments).await.succeeded();
    assert_eq!(requests.load(Ordering::SeqCst), 2 * 500 * (1 + 3));
    let report = report(folder.path());
    let [coded] = &report.strategies[..] else { unreachable!("{report:?}") };
    let (repeated, invalid) = (coded.repeated_blocks, coded.invalid_blocks);
    assert_eq!((repeated, invalid, coded.counts.planned), (6, 2, 1000));
    // The test server's metrics count half a redundant request for each request.
    assert_eq!(coded.cost.redundancy.unwrap().issued, 500);
    assert!(ended.stderr.contains("once more"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_experiment_names_frontends_and_where_their_metrics_are() {
    let folder = folder();
    let (none, _) = common::start(|_, _| Act::Exact).await;
    let (coded, _) = common::start(|_, _| Act::Exact).await;
    let (metrics, _) = common::start_with_metrics(|_, _| Act::Exact).await;
    let experiment = format!(
        "model = \"digits\"\nrate = 2000\nrequests = 20\nblocks = 2\nwarm_up = 0\nbaseline = \
            \"none\"\n\
         [[strategies]]\nname = \"none\"\nurl = \"http://{none}\"\nmetrics_url = \
         \"http://127.0.0.1:1\"\n\
         [[strategies]]\nname = \"coded\"\nurl = \"http://{coded}\"\nmetrics_url = \
         \"http://{metrics}\"\n"
    );
    std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
    run(&folder, "--experiment experiment.toml --baseline coded").await.succeeded();
    let report = report(folder.path());
    let found = (report.baseline.as_str(), report.settings.timeout_ms);
    assert_eq!(found, ("coded", 2000));
    let [none, coded] = [0, 1].map(|strategy| &report.strategies[strategy]);
    assert_eq!(none.cost.redundancy, None);
    assert_eq!(coded.cost.redundancy.unwrap().issued, 0);
    assert_eq!(coded.instances, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn mistakes_are_one_line_and_leave_no_report() {
    let folder = folder();
    let (address, requests) = common::start(|_, _| Act::Exact).await;
    let none = format!("--target none=http://{address}");
    let small = b"\0\0\x08\x03\0\0\0\x14\0\0\0\x01\0\0\0\x01aaaaaaaaaaaaaaaaaaaa";
    std::fs::write(folder.path().join("small"), small).unwrap();
    let good = format!("{none} --model digits --rate 1000 --requests 20");
    for (start, table) in [
        ("", "=> nothing to compare; give --experiment, or --target"),
        (
            good.as_str(),
            r#"
--experiment e.toml => cannot be used with
--target coded => --target "coded": give NAME=http://host:port
--target coded=127.0.0.1:1 => strategies[1].url: "127.0.0.1:1" is no address
--target none=http://127.0.0.1:1 => there twice
--target coded=http://127.0.0.1:1 => strategy coded: target http://127.0.0.1:1: unreachable
--baseline coded => no strategy is named "coded"
--blocks 0 => blocks: 0
--timeout-ms 0 => timeout_ms: 0
--csv images => images: cannot be a folder
--csv missing/logs => missing/logs: cannot be a folder
"#,
        ),
        (
            none.as_str(),
            r#"
--rate 1 --requests 20 => model: none; name the deployed model
--model digits --requests 20 => rate: 0; give requests/s above 0
--model digits --rate 1 => requests: 0 requests for 10 blocks
--model other --rate 1 --requests 20 => strategy none: target
"#,
        ),
    ] {
        for (more, says) in cases(table) {
            run(&folder, &format!("{start} {more}")).await.refused(says);
            assert!(!folder.path().join("report.json").exists());
        }
    }
    let line = format!("compare --images small {good}");
    run_beside(folder.path(), &line).await.refused("the images are [1, 1]");
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn ctrl_c_and_sigterm_end_a_comparison_with_a_partial_report() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = folder();
        let (none, requests) = common::start(|_, _| Act::Exact).await;
        let line = format!(
            "compare --images images --model digits --target none=http://{none} --json \
             report.json --rate 1000 --requests 200000 --blocks 10000 --warm-up 0"
        );
        let mut command = tokio::process::Command::from(command(folder.path(), &line));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // A block is 20 requests, and there is nothing to compare before one is done.
        while requests.load(Ordering::SeqCst) < 60 {
            tokio::task::yield_now().await;
        }
        let id = Pid::from_raw(child.id().unwrap().try_into().unwrap());
        kill(id, signal).unwrap();
        let ended = Ended::from(child.wait_with_output().await.unwrap());
        assert_eq!(ended.code, Some(130), "{signal}: {}", ended.stderr);
        assert!(report(folder.path()).partial, "{signal}");
    }
}
