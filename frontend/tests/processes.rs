//! Real processes: every one is killed and started again, in several orders, while clients keep
//! asking. The frontend recovers by itself, and no request ends without an answer or an error
//! before its deadline.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use http::StatusCode;
use support::process::{FRONTEND, Process};
use support::served::LIMIT;
use support::{SAMPLE, coded_toml, free_address, get, infer, repository, wait_until};

/// Deadline of every request, in milliseconds; scheduling on a busy machine gets the same again.
const DEADLINE_MS: u64 = 1000;

/// The instance server's binary, which another package builds.
fn instance_binary() -> PathBuf {
    let binary = Path::new(FRONTEND).with_file_name("parapet-instance");
    if !binary.is_file() {
        let build = ["build", "-p", "parapet-models", "--bin", "parapet-instance"];
        let status = Command::new(env!("CARGO")).args(build).status();
        let status = status.expect("cargo runs");
        assert!(status.success() && binary.is_file(), "cargo {build:?}");
    }
    binary
}

struct Cluster {
    /// Two replicas, one parity instance, the frontend.
    processes: Vec<Process>,
    address: SocketAddr,
    _repository: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let repository = repository();
        let addresses = [(); 4].map(|()| free_address());
        let root = repository.path().to_str().unwrap();
        let mut processes = Vec::new();
        for (address, model) in addresses.iter().zip(["linear", "linear", "linear-parity"]) {
            let listen = address.to_string();
            let flags = ["--repository", root, "--model", model, "--listen", &listen];
            processes.push(Process::start(instance_binary(), &flags));
        }
        let timeout = format!("timeout_ms = {DEADLINE_MS}");
        let (deployed, parity) = (&addresses[..2], &addresses[2..3]);
        let text = coded_toml(repository.path(), deployed, parity, &timeout);
        let config = repository.path().join("parapet.toml");
        let address = addresses[3];
        std::fs::write(&config, text.replace("127.0.0.1:0", &address.to_string())).unwrap();
        processes.push(Process::frontend(&config));
        Self { processes, address, _repository: repository }
    }

    async fn wait_until_ready(&self) {
        let ready = async || get(self.address, "/v2/health/ready").await.status == StatusCode::OK;
        wait_until("ready", LIMIT, ready).await;
    }

    /// Asks four times at once; each must end in time, with the right answer or with an error.
    async fn ask(&self) -> usize {
        let one = async || {
            let started = Instant::now();
            let answer = infer(self.address, &SAMPLE, "").await;
            let (took, limit) = (started.elapsed(), Duration::from_millis(2 * DEADLINE_MS));
            assert!(took < limit, "CG-1: {took:?}");
            if answer.status == StatusCode::OK {
                answer.is_right(&SAMPLE);
                return 1;
            }
            assert!(answer.status.is_server_error(), "{}", answer.error());
            0
        };
        let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
        a + b + c + d
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_may_be_killed_and_started_again_in_any_order() {
    let mut cluster = Cluster::start();
    cluster.wait_until_ready().await;
    assert_eq!(cluster.ask().await, 4);
    const FRONTEND: usize = 3;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        for (step, &process) in order.iter().enumerate() {
            cluster.processes[process].kill();
            if order[..=step].contains(&FRONTEND) {
                continue; // down until it is back
            }
            let answered = cluster.ask().await;
            let replica_is_up = (0..2).any(|replica| !order[..=step].contains(&replica));
            // One replica is enough.
            assert!(!replica_is_up || answered == 4, "{answered} of 4, order {order:?}");
        }
        // Back in the same order: the frontend may come before its instances, and after them.
        for &process in &order {
            cluster.processes[process].restart();
        }
        cluster.wait_until_ready().await;
        assert_eq!(cluster.ask().await, 4, "order {order:?}");
    }
}

#[test]
fn a_mistake_is_one_line_that_says_it_once() {
    let mut command = Command::new(FRONTEND);
    let output = command.args(["--config", "nowhere.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let counts = (said.lines().count(), said.matches("No such file").count());
    assert_eq!(counts, (1, 1), "{said}");
}
