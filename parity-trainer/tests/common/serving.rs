//! Real instances and frontends beside the trainer.
#![allow(clippy::panic, reason = "test helpers")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::Workplace;

/// A serving program, which other packages build, beside the trainer.
fn program(name: &str, package: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_BIN_EXE_parity-trainer")).with_file_name(name);
    if !file.is_file() {
        let build = ["build", "-p", package, "--bin", name];
        let status = Command::new(env!("CARGO")).args(build).status();
        assert!(status.unwrap().success() && file.is_file(), "cargo {build:?}");
    }
    file
}

/// A program that ends with this value, and where it listens.
struct Process(Child, String);

impl Process {
    /// Starts it, and waits for the line that says where it listens.
    fn start(program: &Path, flags: &[&str], log: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().to_owned();
        assert!(!address.is_empty(), "{}", fs::read_to_string(log).unwrap());
        Self(child, address)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Two replicas of `models/deployed`, an instance of `models/parity`, and a frontend that codes.
pub struct Served {
    frontend: Process,
    replicas: [Process; 2],
    _parity: Process,
}

impl Served {
    pub fn start(workplace: &Workplace) -> Self {
        let root = workplace.at("models");
        let instance = program("parapet-instance", "parapet-models");
        let start = |number: usize, model: &str| {
            let flags = ["--repository", root.to_str().unwrap(), "--model", model];
            let flags = [&flags[..], &["--listen", "127.0.0.1:0"]].concat();
            Process::start(&instance, &flags, &workplace.at(&format!("instance-{number}.log")))
        };
        let replicas = [start(0, "deployed"), start(1, "deployed")];
        let parity = start(2, "parity");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[repository]\npath = {root:?}\n\
             [[models]]\nname = \"deployed\"\ninstances = [{:?}, {:?}]\ntimeout_ms = 15000\n\
             slots_per_instance = 64\n\
             [models.health]\nsuspect_after_ms = 60000\ntimeout_ms = 60000\n\
             [models.strategy]\nkind = \"coded\"\nencoder = \"stack\"\nk = 2\nflush_after_ms = 5\n\
             hold_back = {{ fixed_ms = 50 }}\n\
             [[models.strategy.parity]]\nmodel = \"parity\"\ninstances = [{:?}]\n",
            replicas[0].1, replicas[1].1, parity.1
        );
        let config = workplace.at("parapet.toml");
        fs::write(&config, text).unwrap();
        let flags = ["--config", config.to_str().unwrap()];
        let frontend = program("parapet-frontend", "parapet-frontend");
        let frontend = Process::start(&frontend, &flags, &workplace.at("frontend.log"));
        Self { frontend, replicas, _parity: parity }
    }

    /// Answers to each sample, and to all of them at once while a replica is frozen.
    pub fn before_and_while_frozen<A: Send>(
        &self,
        samples: &[Vec<f32>],
        ask: impl Fn(&str, &Vec<f32>) -> A + Sync,
    ) -> Vec<(A, A)> {
        let ask = |sample| ask(&self.frontend.1, sample);
        let before: Vec<A> = samples.iter().map(ask).collect();
        self.replicas[0].signal(Signal::SIGSTOP);
        let frozen: Vec<A> = std::thread::scope(|scope| {
            let asked: Vec<_> = samples.iter().map(|sample| scope.spawn(|| ask(sample))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        self.replicas[0].signal(Signal::SIGCONT);
        before.into_iter().zip(frozen).collect()
    }
}

/// Provenance of an answer.
pub fn kind_of(answer: &Value) -> &str {
    answer["parameters"]["provenance"].as_str().unwrap_or_default()
}

/// The answer to a sample; an empty one if there is none in time.
pub fn infer(address: &str, model: &str, shape: &[usize], sample: &[f32]) -> Value {
    let shape = [&[1], shape].concat();
    let input = json!({ "name": "input", "datatype": "FP32", "shape": shape, "data": sample });
    let body = json!({ "inputs": [input] }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: parapet\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

pub fn values(answer: &Value) -> Vec<f32> {
    let data = answer["outputs"][0]["data"].as_array();
    let values = data.unwrap_or_else(|| panic!("{answer}")).iter();
    values.map(|value| value.as_f64().unwrap() as f32).collect()
}
