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
    fn up(folder: &Path, servers: usize, workers: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity-trainer"));
        command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::piped());
        command.args(["--threads", "1", "cluster", "up", "--listen", "127.0.0.1:0"]);
        command.args(["--servers", &servers.to_string(), "--workers", &workers.to_string()]);
        let mut process = command.spawn().unwrap();
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

fn line(name: &str, rest: &str) -> String {
    format!(
        "train --model models/quarters --data . --k 2 --encoder sum --network mlp:256,64 --seed 5 --augment none \
         --transform raw --out models --name {name} {rest}"
    )
}

fn train(folder: &Path, name: &str, rest: &str) -> Vec<u8> {
    let output = trainer(folder, &line(name, rest));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(folder.join("models").join(name).join("1/model.onnx")).unwrap()
}

/// Data and a deployed model.
fn prepare(folder: &Path) {
    write_quarters(folder, 200, 60);
    let line = "train-deployed --data . --network mlp:256,32 --epochs 2 --seed 5 --augment none --out models --name quarters";
    let output = trainer(folder, line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_cluster_gives_the_model_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    prepare(folder);
    let alone = train(folder, "alone", "--steps 40");
    let mut in_parts = Vec::new();
    for workers in [0, 2] {
        let cluster = Cluster::up(folder, 2, workers);
        let on = format!("--steps 40 --cluster {}", cluster.registry);
        let sequential = train(folder, "sequential", &format!("{on} --executors 1"));
        assert!(sequential == alone, "one executor and {workers} workers: another model");
        in_parts.push(train(folder, "parts", &on));
        // The run has checkpoints, which any backend goes on from.
        let resumed = train(folder, "parts", "--steps 40 --resume");
        assert!(in_parts.last() == Some(&resumed), "what is in its checkpoint");
    }
    assert!(in_parts[0] == in_parts[1], "the model depends on the number of workers");
}

/// The run and all of its servers are killed; what is left is its checkpoints.
#[test]
fn a_checkpoint_of_three_servers_goes_on_with_two_and_with_five_and_a_torn_one_is_not_picked() {
    const STEPS: &str = "--steps 2000 --checkpoint-steps 50";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    prepare(folder);
    let straight = train(folder, "straight", STEPS);
    {
        let cluster = Cluster::up(folder, 3, 0);
        let on = format!("{STEPS} --executors 1 --cluster {}", cluster.registry);
        let mut run = common::command(folder, &line("killed", &on)).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok);
        let told = lines.by_ref().filter(|line| line.contains(": checkpoint ")).take(3).count();
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(told, 3, "it ended before");
        assert!(!folder.join("models/killed").exists(), "it was killed before its end");
    }
    for servers in [2, 5] {
        let copy = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-r").args([folder.join("."), copy.path().into()]).status();
        assert!(copied.unwrap().success());
        let runs = fs::read_dir(copy.path().join("models/.runs/killed")).unwrap();
        let mut checkpoints: Vec<_> = runs.map(|file| file.unwrap().path()).collect();
        checkpoints.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint-"));
        checkpoints.sort();
        assert!(checkpoints.len() > 1, "{checkpoints:?}");
        if servers == 5 {
            let newest = fs::File::options().write(true).open(checkpoints.pop().unwrap()).unwrap();
            newest.set_len(newest.metadata().unwrap().len() / 2).unwrap();
        }
        let cluster = Cluster::up(copy.path(), servers, 0);
        let on = format!("{STEPS} --executors 1 --resume --cluster {}", cluster.registry);
        let output = trainer(copy.path(), &line("killed", &on));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("killed: goes on after step "), "{told}");
        assert_eq!(told.contains("not a whole checkpoint"), servers == 5, "{told}");
        let resumed = fs::read(copy.path().join("models/killed/1/model.onnx")).unwrap();
        assert!(resumed == straight, "{servers} servers: another model");
    }
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
