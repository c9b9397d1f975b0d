//! Training on processes: the same model as in one, byte for byte, on any number of workers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{command, succeed_saying, trainer, write_quarters};

/// A cluster on this machine. It ends with this.
struct Cluster {
    process: Child,
    registry: String,
}

impl Cluster {
    fn up(folder: &Path, servers: usize, workers: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity-trainer"));
        command
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.args(["--threads", "1", "cluster", "up", "--listen", "127.0.0.1:0"]);
        command.args([
            "--servers",
            &servers.to_string(),
            "--workers",
            &workers.to_string(),
        ]);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let registry = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, rest)) = line.split_once("registry ") {
                break rest.split(';').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| eprintln!("{line}"))
        });
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

/// A folder with data and a deployed model.
fn workplace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 200, 60);
    let line = "train-deployed --data . --network mlp:256,32 --epochs 2 --seed 5 --augment none \
        --out models --name quarters";
    succeed_saying(folder.path(), line);
    folder
}

fn line(name: &str, rest: &str) -> String {
    format!(
        "train --model models/quarters --data . --k 2 --encoder sum --network mlp:256,64 --seed 5 \
            --augment none --transform raw --out models --name {name} {rest}"
    )
}

fn model(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join("models").join(name).join("1/model.onnx")).unwrap()
}

fn train(folder: &Path, name: &str, rest: &str) -> Vec<u8> {
    succeed_saying(folder, &line(name, &format!("--steps 40 {rest}")));
    model(folder, name)
}

#[test]
fn a_cluster_gives_the_model_of_one_process() {
    let folder = workplace();
    let folder = folder.path();
    let alone = train(folder, "alone", "");
    let mut in_parts = Vec::new();
    for workers in [0, 2] {
        let cluster = Cluster::up(folder, 2, workers);
        let on = format!("--cluster {}", cluster.registry);
        let sequential = train(folder, "sequential", &format!("{on} --executors 1"));
        assert!(
            sequential == alone,
            "one executor and {workers} workers: another model"
        );
        let compressed = train(
            folder,
            "compressed",
            &format!("{on} --executors 1 --filters lz4"),
        );
        assert!(compressed == alone, "compression changes the model");
        in_parts.push(train(folder, "parts", &on));
        // The run has checkpoints, which any backend goes on from.
        let resumed = train(folder, "parts", "--resume");
        assert!(
            in_parts.last() == Some(&resumed),
            "what is in its checkpoint"
        );
    }
    assert!(
        in_parts[0] == in_parts[1],
        "the model depends on the number of workers"
    );
}

/// The model depends on the processes' speeds, unless one makes all steps alone.
#[test]
fn processes_learn_with_stale_weights() {
    let folder = workplace();
    let folder = folder.path();
    let alone = train(folder, "alone", "");
    let embedded = train(folder, "embedded", "--consistency ssp:2");
    assert!(embedded == alone, "one process misses nothing");
    let cluster = Cluster::up(folder, 2, 2);
    let on = format!("--cluster {} --consistency ssp:2", cluster.registry);
    let sequential = train(folder, "sequential", &format!("{on} --executors 1"));
    assert!(sequential == alone, "one executor misses nothing");
    let said = succeed_saying(
        folder,
        &line("stale", &format!("--steps 200 --json stale.json {on}")),
    );
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("stale.json")).unwrap()).unwrap();
    let agreement = report["agreement"].as_f64().unwrap();
    assert!(agreement > 0.8, "{agreement}: {said}");
    let resumed = succeed_saying(
        folder,
        &line("stale", &format!("--steps 200 {on} --resume")),
    );
    assert!(resumed.contains("goes on after step 200"), "{resumed}");
}

/// Batch norm's running moments are measured by the process that computes a part, and belong to the
/// model that is written.
#[test]
fn a_model_with_batch_norm_does_not_depend_on_the_number_of_workers() {
    const NETWORK: &str = "--network resnet8:4 --steps 12 --validate-every 3 --checkpoint-steps 5";
    let folder = workplace();
    let folder = folder.path();
    let train = |name: &str, rest: &str| {
        let line = line(name, rest).replace("--network mlp:256,64", NETWORK);
        succeed_saying(folder, &line);
        model(folder, name)
    };
    let alone = train("alone", "");
    let mut in_parts = Vec::new();
    for workers in [0, 3] {
        let cluster = Cluster::up(folder, 2, workers);
        let on = format!("--cluster {}", cluster.registry);
        let sequential = train("sequential", &format!("{on} --executors 1"));
        assert!(
            sequential == alone,
            "one executor and {workers} workers: another model"
        );
        in_parts.push(train("parts", &on));
        let resumed = train("parts", "--resume");
        assert!(
            in_parts.last() == Some(&resumed),
            "what is in its checkpoint"
        );
    }
    assert!(
        in_parts[0] == in_parts[1],
        "the model depends on the number of workers"
    );
    assert!(
        in_parts[0] != alone,
        "its parts are normalised by themselves"
    );
}

/// Checkpoints of a run, the oldest first.
fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(run).unwrap().map(|file| file.unwrap().path());
    let is_one = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("checkpoint-")
    };
    let mut found: Vec<PathBuf> = files.filter(is_one).collect();
    found.sort();
    found
}

/// The optimiser's state lies on the servers, so that a checkpoint is put together from all of
/// them, and taken apart again.
#[test]
fn a_checkpoint_of_three_servers_is_gone_on_from_on_two_and_on_five() {
    const SETTINGS: &str = "--steps 400 --checkpoint-steps 30 --executors 2";
    let folder = workplace();
    let folder = folder.path();
    let on = |cluster: &Cluster| format!("{SETTINGS} --cluster {}", cluster.registry);
    let run = |name: &str| folder.join("models/.runs").join(name);
    let three = Cluster::up(folder, 3, 1);
    succeed_saying(folder, &line("straight", &on(&three)));
    let straight = model(folder, "straight");

    let mut child = command(folder, &line("killed", &on(&three)));
    let mut child = child
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert_eq!(
        lines
            .by_ref()
            .filter(|line| line.contains(": checkpoint "))
            .take(2)
            .count(),
        2,
        "it has ended"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    drop(three);
    assert!(
        !folder.join("models/killed").exists(),
        "it was killed before its end"
    );

    for (servers, is_torn) in [(2, false), (5, true)] {
        let name = format!("on-{servers}");
        fs::create_dir(run(&name)).unwrap();
        for file in fs::read_dir(run("killed")).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), run(&name).join(file.file_name())).unwrap();
        }
        let whole = checkpoints(&run(&name));
        assert_eq!(whole.len(), 2, "{whole:?}");
        let mut expected = &whole[1];
        if is_torn {
            // As a disk may leave it that was never told to keep it: its name is there, not all of
            // it is.
            let contents = fs::read(&whole[1]).unwrap();
            fs::write(&whole[1], &contents[..contents.len() / 2]).unwrap();
            expected = &whole[0];
        }
        let cluster = Cluster::up(folder, servers, 1);
        let said = succeed_saying(folder, &line(&name, &format!("{} --resume", on(&cluster))));
        assert_eq!(said.contains("not a whole checkpoint"), is_torn, "{said}");
        let step = expected
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .rsplit('-')
            .next()
            .unwrap()
            .to_owned();
        let step = format!("goes on after step {}", step.trim_start_matches('0'));
        assert!(said.contains(&step), "{step} is not in {said}");
        assert!(
            model(folder, &name) == straight,
            "another model on {servers} servers"
        );
    }
}

#[test]
fn a_cluster_that_is_not_there_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 60, 20);
    for (registry, part) in [
        ("parapet://127.0.0.1:1", "does not answer"),
        ("nowhere", "names no registry"),
    ] {
        let output = trainer(folder.path(), &format!("worker --registry {registry}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(part), "{error}");
    }
}
