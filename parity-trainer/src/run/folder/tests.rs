//! Checkpoints, logs and runs before.

use super::*;
use crate::backend::BackendState;
use crate::training::{RngPosition, SamplerPosition, TrainerState};

fn checkpoint(step: u64, run: &str) -> Checkpoint {
    let arrays = vec![("weights".to_owned(), vec![step as f32; 5])];
    Checkpoint {
        run: run.to_owned(),
        state: TrainerState {
            backend: BackendState {
                clock: step,
                arrays,
            },
            buffers: Vec::new(),
            best: None,
            rng: RngPosition {
                seed: [1; 32],
                stream: 2,
                word: 3,
            },
            sampler: SamplerPosition {
                order: vec![1, 0],
                next: 1,
                recent: Vec::new(),
            },
        },
    }
}

fn record(step: u64) -> LogRecord {
    LogRecord {
        step,
        ..LogRecord::default()
    }
}

fn run(steps: &[u64]) -> (tempfile::TempDir, RunFolder) {
    let place = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(place.path().join("run"));
    folder.begin().unwrap();
    folder.write_config("").unwrap();
    for &step in steps {
        folder.save(&checkpoint(step, "a")).unwrap();
        folder.log(&record(step)).unwrap();
    }
    (place, folder)
}

#[test]
fn the_last_two_are_kept_and_the_newest_is_found() {
    let (_place, folder) = run(&[5, 10, 15, 20]);
    let steps: Vec<u64> = folder
        .checkpoints()
        .unwrap()
        .into_iter()
        .map(|(step, _)| step)
        .collect();
    assert_eq!(steps, [15, 20]);
    assert_eq!(
        folder.resume("a").unwrap().checkpoint,
        Some(checkpoint(20, "a"))
    );
    folder.require_run("a").unwrap();
    assert!(matches!(
        folder.require_run("b"),
        Err(RunError::OtherRun { .. })
    ));
    let message = folder.resume("b").unwrap_err().to_string();
    assert!(
        message.contains("a run with other settings") && !message.contains('\n'),
        "{message}"
    );
}

#[test]
fn a_torn_checkpoint_is_skipped_and_the_log_goes_back_with_it() {
    let (_place, folder) = run(&[5, 10]);
    let newest = folder.path().join(file_name(10));
    let contents = fs::read(&newest).unwrap();
    fs::write(&newest, &contents[..contents.len() - 3]).unwrap();
    let found = folder.resume("a").unwrap();
    assert_eq!(found.checkpoint, Some(checkpoint(5, "a")));
    assert!(
        found.skipped[0]
            .to_string()
            .contains("000000010.safetensors: not a whole checkpoint")
    );
    assert_eq!(folder.records().unwrap(), [record(5)]);

    folder.save(&checkpoint(12, "a")).unwrap();
    let steps: Vec<u64> = folder
        .checkpoints()
        .unwrap()
        .into_iter()
        .map(|(step, _)| step)
        .collect();
    assert_eq!(steps, [5, 12], "a torn checkpoint is none of the last two");

    for step in steps {
        fs::write(folder.path().join(file_name(step)), b"").unwrap();
    }
    assert!(matches!(
        folder.resume("a"),
        Err(RunError::AllTorn { count: 2, .. })
    ));
}

#[test]
fn a_full_disk_costs_no_older_checkpoint() {
    let (_place, folder) = run(&[5, 10]);
    let mut aside = folder.path().join(file_name(15)).into_os_string();
    aside.push(".partial");
    std::os::unix::fs::symlink("/dev/full", &aside).unwrap();
    let message = folder.save(&checkpoint(15, "a")).unwrap_err().to_string();
    assert!(
        message.contains("No space left on device") && message.contains("--resume"),
        "{message}"
    );
    assert_eq!(folder.checkpoints().unwrap().len(), 2);
    assert_eq!(
        folder.resume("a").unwrap().checkpoint,
        Some(checkpoint(10, "a"))
    );
}

#[test]
fn a_new_run_puts_the_one_before_aside() {
    let (_place, folder) = run(&[5, 10]);
    folder.begin().unwrap();
    assert!(folder.checkpoints().unwrap().is_empty() && folder.records().unwrap().is_empty());
    assert!(folder.path().join(REPLACED).join(file_name(10)).is_file());
    assert!(folder.resume("a").unwrap().checkpoint.is_none());
    let others = RunFolder::at(folder.path().join("others"));
    fs::create_dir(others.path()).unwrap();
    fs::write(others.path().join(CONFIG), "theirs = true").unwrap();
    let message = others.begin().unwrap_err().to_string();
    assert!(
        message.contains("another program's config.toml") && !message.contains('\n'),
        "{message}"
    );
    assert!(others.begin().unwrap_err().is_input());
    let nowhere = RunFolder::at(folder.path().join("nowhere"));
    assert!(matches!(nowhere.resume("a"), Err(RunError::NoRun { .. })));
}
