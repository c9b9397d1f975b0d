//! Checkpoints, logs and runs before.

use super::*;
use crate::backend::BackendState;
use crate::network::stream;
use crate::training::{Sampler, TrainerState};

fn checkpoint(step: u64) -> Checkpoint {
    let state = TrainerState {
        backend: BackendState { clock: step, weights: vec![step as f32; 5], slots: Vec::new() },
        buffers: Vec::new(),
        best: None,
        rng: stream(1, 2),
        sampler: Sampler::new(2),
    };
    let run = "a".to_owned();
    Checkpoint { run, state }
}

fn record(step: u64) -> LogRecord {
    LogRecord { step, ..LogRecord::default() }
}

fn run(steps: &[u64]) -> (tempfile::TempDir, RunFolder) {
    let place = tempfile::tempdir().unwrap();
    let folder = RunFolder(place.path().join("run"));
    folder.begin().unwrap();
    folder.write_config("").unwrap();
    for &step in steps {
        folder.save(&checkpoint(step)).unwrap();
        folder.log(&record(step)).unwrap();
    }
    (place, folder)
}

fn steps(folder: &RunFolder) -> Vec<u64> {
    let checkpoints = folder.checkpoints().unwrap();
    checkpoints.into_iter().map(|(step, _)| step).collect()
}

/// Checks an error that the user's input is at fault for: one line that has `part`.
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T>, part: &str) {
    let error = outcome.unwrap_err();
    let message = error.to_string();
    assert!(error.is_input() && message.contains(part), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn last_two_checkpoints_are_kept_and_the_newest_is_found() {
    let (_place, folder) = run(&[5, 10, 15, 20]);
    assert_eq!(steps(&folder), [15, 20]);
    assert_eq!(folder.resume("a").unwrap().checkpoint, Some(checkpoint(20)));
    folder.find("a").unwrap();
    assert_refused(folder.find("b"), "a run with other settings");
    assert_refused(folder.resume("b"), "a run with other settings");
}

#[test]
fn torn_checkpoint_is_skipped_and_the_log_goes_back_with_it() {
    let (_place, folder) = run(&[5, 10]);
    let newest = folder.0.join(file_name(10));
    let contents = fs::read(&newest).unwrap();
    fs::write(&newest, &contents[..contents.len() - 3]).unwrap();
    let found = folder.resume("a").unwrap();
    assert_eq!(found.checkpoint, Some(checkpoint(5)));
    assert_eq!(found.skipped[0].0, newest);
    assert_eq!(folder.records().unwrap(), [record(5)]);

    folder.save(&checkpoint(12)).unwrap();
    assert_eq!(steps(&folder), [5, 12], "a torn checkpoint is none of the last two");
    for step in [5, 12] {
        fs::write(folder.0.join(file_name(step)), b"").unwrap();
    }
    assert_refused(folder.resume("a"), "none of the 2 checkpoints is whole");
}

#[test]
fn full_disk_costs_no_older_checkpoint() {
    let (_place, folder) = run(&[5, 10]);
    let aside = folder.0.join(file_name(15) + ".partial");
    std::os::unix::fs::symlink("/dev/full", &aside).unwrap();
    let message = folder.save(&checkpoint(15)).unwrap_err().to_string();
    let (why, fix) = ("No space left on device", "--resume");
    assert!(message.contains(why) && message.contains(fix), "{message}");
    assert_eq!(steps(&folder), [5, 10]);
    assert_eq!(folder.resume("a").unwrap().checkpoint, Some(checkpoint(10)));
}

#[test]
fn new_run_puts_the_one_before_aside() {
    let (_place, folder) = run(&[5, 10]);
    folder.begin().unwrap();
    assert!(steps(&folder).is_empty() && folder.records().unwrap().is_empty());
    assert!(folder.0.join(REPLACED).join(file_name(10)).is_file());
    assert!(folder.resume("a").unwrap().checkpoint.is_none());

    let others = RunFolder(folder.0.join("others"));
    fs::create_dir(&others.0).unwrap();
    fs::write(others.0.join(CONFIG), "theirs = true").unwrap();
    assert_refused(others.begin(), "another program's config.toml");
    assert_refused(RunFolder(folder.0.join("nowhere")).resume("a"), "no run to resume");
}
