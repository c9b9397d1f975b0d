//! Training on processes: the same model as in one, byte for byte, on any number of workers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{trainer, write_quarters};

/// A cluster on this machine. It ends with this.
struct Cluster {
    process: Child,
    registry: String,
}

impl Cluster {
    fn up(folder: &Path, workers: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity-trainer"));
        command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
        command.args(["--threads", "1", "cluster", "up", "--servers", "2", "--listen", "127.0.0.1:0"]);
        let mut process = command.args(["--workers", &workers.to_string()]).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let registry = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, rest)) = line.split_once("registry ") {
                break rest.split(';').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Self { process, registry }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let _ = self.process.wait();
    }
}

fn train(folder: &Path, name: &str, rest: &str) -> Vec<u8> {
    let line = format!(
        "train --model models/quarters --data . --k 2 --encoder sum --network mlp:256,64 --steps 40 --seed 5 \
         --augment none --transform raw --out models --name {name} {rest}"
    );
    let output = trainer(folder, &line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(folder.join("models").join(name).join("1/model.onnx")).unwrap()
}

#[test]
fn a_cluster_gives_the_model_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_quarters(folder, 200, 60);
    let line = "train-deployed --data . --network mlp:256,32 --epochs 2 --seed 5 --augment none --out models --name quarters";
    let output = trainer(folder, line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let alone = train(folder, "alone", "");
    let mut in_parts = Vec::new();
    for workers in [0, 2] {
        let cluster = Cluster::up(folder, workers);
        let on = format!("--cluster {}", cluster.registry);
        let sequential = train(folder, "sequential", &format!("{on} --executors 1"));
        assert!(sequential == alone, "one executor and {workers} workers: another model");
        in_parts.push(train(folder, "parts", &on));
        // The run has checkpoints, which any backend goes on from.
        let resumed = train(folder, "parts", "--resume");
        assert!(in_parts.last() == Some(&resumed), "what is in its checkpoint");
    }
    assert!(in_parts[0] == in_parts[1], "the model depends on the number of workers");
}

#[test]
fn a_cluster_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 60, 20);
    for (registry, part) in [("parapet://127.0.0.1:1", "does not answer"), ("nowhere", "names no registry")] {
        let output = trainer(folder.path(), &format!("worker --registry {registry}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(part), "{error}");
    }
}
