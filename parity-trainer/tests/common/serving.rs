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

/// A serving program, which other packages build, beside the trainer.
pub fn program(name: &str, package: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_BIN_EXE_parity-trainer")).with_file_name(name);
    if !file.is_file() {
        let build = ["build", "-p", package, "--bin", name];
        let status = Command::new(env!("CARGO")).args(build).status();
        assert!(status.unwrap().success() && file.is_file(), "cargo {build:?}");
    }
    file
}

/// A program that ends with this value, and where it listens.
pub struct Process(Child, pub String);

impl Process {
    /// Starts it, and waits for the line that says where it listens.
    pub fn start(program: &Path, flags: &[&str], log: &Path) -> Self {
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

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
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
