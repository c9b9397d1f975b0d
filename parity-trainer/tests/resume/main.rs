//! Real runs that are killed, interrupted and damaged: what comes out is what an undisturbed run
//! gives, to the bit.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod records;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

use common::{command, succeed_saying, trainer, write_quarters};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A folder with data and a deployed model.
fn workplace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 120, 20);
    let line = "train-deployed --data . --network mlp:256,16 --epochs 3 --augment none --out \
        models --name quarters";
    succeed_saying(folder.path(), line);
    folder
}

const MLP: &str = "--network mlp:256,64 --steps 3000 --checkpoint-steps 50";

fn train(name: &str, rest: &str) -> String {
    let code = if rest.contains("--encoder") {
        ""
    } else {
        "--encoder sum --transform raw"
    };
    format!(
        "train --model models/quarters --data . {code} --augment none --batch 16 --seed 3 --out \
            models --name {name} {rest}"
    )
}

/// All files of the entry's version, one after another; of a learned code both networks.
fn model(folder: &Path, name: &str) -> Vec<u8> {
    let items = fs::read_dir(folder.join("models").join(name).join("1")).unwrap();
    let mut files: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 1, "{files:?}");
    files
        .iter()
        .flat_map(|file| fs::read(file).unwrap())
        .collect()
}

fn checkpoints(folder: &Path, name: &str) -> Vec<PathBuf> {
    let items = fs::read_dir(folder.join("models/.runs").join(name)).unwrap();
    let mut paths: Vec<PathBuf> = items.map(|item| item.unwrap().path()).collect();
    paths.retain(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("checkpoint-")
    });
    paths.sort();
    paths
}

/// Starts a run and hands it over when it has told of `count` checkpoints.
fn until_checkpoint(folder: &Path, line: &str, count: usize) -> (Child, BufReader<ChildStderr>) {
    let mut child = command(folder, line)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut told = 0;
    let mut all = String::new();
    while told < count {
        let before = all.len();
        assert!(
            lines.read_line(&mut all).unwrap() > 0,
            "the run ended: {all}"
        );
        told += usize::from(all[before..].contains(": checkpoint "));
    }
    (child, lines)
}

/// Kills a run in the middle, resumes it, and compares it with one that ran through.
fn survives_a_kill(line: impl Fn(&str) -> String) {
    let folder = workplace();
    let folder = folder.path();
    succeed_saying(folder, &line("straight"));
    let (mut child, _) = until_checkpoint(folder, &line("killed"), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        !folder.join("models/killed").exists(),
        "it was killed before its end"
    );
    let message = succeed_saying(folder, &format!("{} --resume", line("killed")));
    assert!(message.contains("killed: goes on after step "), "{message}");
    assert!(
        model(folder, "straight") == model(folder, "killed"),
        "the models differ"
    );
    assert_eq!(checkpoints(folder, "killed").len(), 2);
}

#[test]
fn a_killed_run_ends_as_if_nothing_had_happened() {
    survives_a_kill(|name| train(name, MLP));
}

#[test]
fn running_moments_and_fillers_survive_as_well() {
    let settings =
        "--network resnet8:4 --steps 60 --checkpoint-steps 8 --filler-share 0.3 --clip 1";
    survives_a_kill(|name| train(name, settings));
}

#[test]
fn a_learned_codes_training_survives_a_kill() {
    let settings = "--encoder learned --network mlp:512,48 --steps 600 --checkpoint-steps 15 \
        --trial-share 0.02";
    survives_a_kill(|name| train(name, settings));
}

/// Running moments, augmented samples and the order of a pass have to come back.
fn train_deployed(name: &str) -> String {
    format!(
        "train-deployed --data . --network resnet8:4 --epochs 10 --batch 16 --augment shift \
            --seed 3 --checkpoint-steps 5 --out models --name {name}"
    )
}

#[test]
fn a_deployed_models_training_survives_a_kill() {
    survives_a_kill(train_deployed);
}

#[test]
fn ctrl_c_ends_a_trial_at_once() {
    let folder = workplace();
    let folder = folder.path();
    let line = format!(
        "{} --transform auto --network mlp:256,64 --steps 3000000 --trial-share 1",
        train("tried", "--encoder sum")
    );
    let mut child = command(folder, &line)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(
        lines.any(|line| line.starts_with("transform: tries ")),
        "it began"
    );
    kill(
        Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert_eq!(
        rest.last().unwrap(),
        "error: interrupted; run the same command again"
    );
    assert!(
        !rest.iter().any(|line| line.contains("% agreement after")),
        "no trial ended: {rest:?}"
    );
    assert!(!folder.join("models/tried").exists() && !folder.join("models/.partial").exists());
}

#[test]
fn ctrl_c_writes_a_checkpoint_and_says_how_to_go_on() {
    let folder = workplace();
    let folder = folder.path();
    let settings = "--network mlp:256,64 --steps 3000 --checkpoint-steps 400";
    succeed_saying(folder, &train("straight", settings));
    let (mut child, mut lines) = until_checkpoint(folder, &train("stopped", settings), 1);
    kill(
        Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    let mut last = String::new();
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 {
            break;
        }
        last = line;
    }
    assert_eq!(child.wait().unwrap().code(), Some(130), "{last}");
    assert!(
        last.contains("interrupted; the same command with --resume"),
        "{last}"
    );
    succeed_saying(folder, &format!("{} --resume", train("stopped", settings)));
    assert!(
        model(folder, "straight") == model(folder, "stopped"),
        "the models differ"
    );
}

#[test]
fn a_job_that_may_be_started_again_takes_one_command() {
    let folder = workplace();
    let folder = folder.path();
    let settings = "--network mlp:256,64 --steps 60 --checkpoint-steps 20 --resume-if-begun";
    for (line, again) in [
        (train("job", settings), "after step 60"),
        (train("rows", &format!("{settings} --r 2")), "after step 60"),
        (
            format!(
                "train-deployed --data . --network mlp:256,16 --epochs 2 --augment none --out \
                    models --name own --checkpoint-steps 1 {}",
                "--resume-if-begun"
            ),
            "goes on after step",
        ),
    ] {
        let message = succeed_saying(folder, &line);
        assert!(!message.contains("goes on"), "{message}");
        let message = succeed_saying(folder, &line);
        assert!(message.contains(again), "{message}");
    }
    let output = trainer(
        folder,
        &format!("{} --learning-rate 0.001", train("job", settings)),
    );
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("belongs to a run with other settings"),
        "{message}"
    );
}
