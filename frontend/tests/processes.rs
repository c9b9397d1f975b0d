//! Real processes: every one is killed and started again, in several orders, while clients keep
//! asking. The frontend recovers by itself, and no request ends without an answer or an error
//! before its deadline.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::StatusCode;
use support::{close, coded_toml, get, infer, linear, repository, wait_until};

/// Deadline of every request, in milliseconds; scheduling on a busy machine gets the same again.
const DEADLINE_MS: u64 = 1000;
const SAMPLE: [f32; 4] = [1.0, 2.0, 3.0, 4.0];

/// A process that is killed with this value, and can be killed and started again on its address.
struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
}

impl Process {
    fn start(program: PathBuf, arguments: Vec<String>) -> Self {
        let child = Self::spawn(&program, &arguments);
        Self {
            program,
            arguments,
            child,
        }
    }

    /// Returns once it has said that it is ready.
    fn spawn(program: &Path, arguments: &[String]) -> Child {
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(
            line.contains("http://"),
            "{} said {line:?}",
            program.display()
        );
        child
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = Self::spawn(&self.program, &self.arguments);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The instance server's binary, which another package builds.
fn instance_binary() -> PathBuf {
    let binary =
        Path::new(env!("CARGO_BIN_EXE_parapet-frontend")).with_file_name("parapet-instance");
    if !binary.is_file() {
        let status = Command::new(env!("CARGO"))
            .args(["build", "-p", "parapet-models", "--bin", "parapet-instance"])
            .status()
            .expect("cargo runs");
        assert!(
            status.success() && binary.is_file(),
            "cargo build -p parapet-models --bin parapet-instance"
        );
    }
    binary
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
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
        let addresses: Vec<SocketAddr> = (0..4).map(|_| free_address()).collect();
        let instance = |address: &SocketAddr, model: &str| {
            let path = repository.path().to_str().unwrap().to_owned();
            let arguments = [
                "--repository",
                &path,
                "--model",
                model,
                "--listen",
                &address.to_string(),
            ];
            Process::start(instance_binary(), arguments.map(str::to_owned).to_vec())
        };
        let mut processes: Vec<Process> = addresses[..3]
            .iter()
            .zip(["linear", "linear", "linear-parity"])
            .map(|(address, model)| instance(address, model))
            .collect();
        let timeout = format!("timeout_ms = {DEADLINE_MS}");
        let text = coded_toml(
            repository.path(),
            &addresses[..2],
            &addresses[2..3],
            &timeout,
        )
        .replace("127.0.0.1:0", &addresses[3].to_string());
        let config = repository.path().join("parapet.toml");
        std::fs::write(&config, text).unwrap();
        let arguments = vec!["--config".to_owned(), config.to_str().unwrap().to_owned()];
        processes.push(Process::start(
            PathBuf::from(env!("CARGO_BIN_EXE_parapet-frontend")),
            arguments,
        ));
        Self {
            processes,
            address: addresses[3],
            _repository: repository,
        }
    }

    async fn wait_until_ready(&self) {
        let ready = async || get(self.address, "/v2/health/ready").await.status == StatusCode::OK;
        wait_until("ready", Duration::from_secs(10), ready).await;
    }

    /// Asks four times at once; each must end in time, with the right answer or with an error.
    async fn ask(&self) -> usize {
        let one = async || {
            let started = Instant::now();
            let answer = infer(self.address, &SAMPLE, "").await;
            assert!(
                started.elapsed() < Duration::from_millis(2 * DEADLINE_MS),
                "CG-1: {:?}",
                started.elapsed()
            );
            if answer.status == StatusCode::OK {
                assert!(
                    close(&answer.values(), &linear(&SAMPLE)),
                    "{:?}",
                    answer.body
                );
                return 1;
            }
            assert!(answer.status.is_server_error(), "{:?}", answer.body);
            assert!(answer.json()["error"].is_string());
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
            assert!(
                !replica_is_up || answered == 4,
                "one replica is enough: {answered} of 4, order {order:?}"
            );
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
    let output = Command::new(env!("CARGO_BIN_EXE_parapet-frontend"))
        .args(["--config", "nowhere.toml"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (said.lines().count(), said.matches("No such file").count()),
        (1, 1),
        "{said}"
    );
}
