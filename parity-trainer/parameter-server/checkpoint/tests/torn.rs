//! Checkpoints that are not whole are never picked, whatever they lack; the newest whole one is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use parapet_parameter_server_checkpoint::{CheckpointError, Checkpoints, place};
use proptest::prelude::*;
use support::{Cluster, DENSE, SPARSE, WORKERS, arrays, table};
use tempfile::TempDir;

/// As [`place`] makes it, but without waiting for the disk each time.
fn on_disk(folder: &Path, keep: usize) -> Checkpoints {
    let store = LocalFileSystem::new_with_prefix(folder).unwrap();
    Checkpoints::new(Arc::new(store), "".into(), keep)
}

/// The files of a checkpoint.
fn files(folder: &Path, number: u64) -> Vec<PathBuf> {
    let folder = folder.join(format!("{number:020}"));
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    // Whether it is there says nothing of a checkpoint that is finished.
    files.retain(|file| !file.ends_with("begun"));
    files.sort();
    files
}

fn numbers(folder: &Path) -> Vec<u64> {
    let mut numbers: Vec<u64> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.read_dir().unwrap().next().is_some())
        .map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Two checkpoints, and a cluster that could write more.
async fn two(folder: &Path) -> (Cluster, Checkpoints) {
    let mut cluster = Cluster::new(2, table(2, 4, 1, 2));
    let checkpoints = on_disk(folder, 5);
    for clock in 1..=2 {
        WORKERS.iter().for_each(|&worker| cluster.push(worker, clock, 0));
        assert_eq!(cluster.checkpoint(&checkpoints).await.unwrap().number, clock);
    }
    (cluster, checkpoints)
}

#[tokio::test]
async fn one_that_was_never_finished_is_skipped() {
    let folder = TempDir::new().unwrap();
    let (cluster, checkpoints) = two(folder.path()).await;
    let third = checkpoints.begin().await.unwrap();
    for state in cluster.states() {
        checkpoints.write_shard(third, &state).await.unwrap();
        let found = checkpoints.newest().await.unwrap();
        assert_eq!(found.newest.unwrap().number, 2);
        assert_eq!(found.skipped[0].number, third);
        assert!(found.skipped[0].error.to_string().contains("manifest.json"), "{}", found.skipped[0].error);
    }
    assert_eq!(checkpoints.begin().await.unwrap(), third + 1, "its number is taken");
}

#[tokio::test]
async fn a_file_that_is_missing_or_short_is_found_out() {
    let folder = TempDir::new().unwrap();
    let (_, checkpoints) = two(folder.path()).await;
    assert_eq!(checkpoints.newest().await.unwrap().newest.unwrap().number, 2);
    for file in files(folder.path(), 2) {
        let whole = fs::read(&file).unwrap();
        let damages: [&dyn Fn(); 4] = [
            &|| fs::remove_file(&file).unwrap(),
            &|| fs::write(&file, &whole[..whole.len() - 1]).unwrap(),
            &|| fs::write(&file, b"").unwrap(),
            &|| fs::write(&file, [&whole[..], &[0]].concat()).unwrap(),
        ];
        for damage in damages {
            damage();
            let found = checkpoints.newest().await.unwrap();
            assert_eq!(found.newest.unwrap().number, 1);
            let error = &found.skipped[0].error;
            assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
            assert!(error.to_string().contains(file.file_name().unwrap().to_str().unwrap()), "{error}");
            fs::write(&file, &whole).unwrap();
        }
    }
    assert_eq!(checkpoints.newest().await.unwrap().newest.unwrap().number, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_flipped_bit_is_found_out(file: prop::sample::Index, byte: prop::sample::Index, bit in 0u8..8) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = TempDir::new().unwrap();
            let (_, checkpoints) = two(folder.path()).await;
            let files = files(folder.path(), 2);
            let file = file.get(&files);
            let mut contents = fs::read(file).unwrap();
            let at = byte.index(contents.len());
            contents[at] ^= 1 << bit;
            let is_same = {
                // Spaces between a manifest's fields say nothing.
                let text = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
                let before = text(&fs::read(file).unwrap());
                before.is_some() && before == text(&contents)
            };
            fs::write(file, &contents).unwrap();
            let newest = checkpoints.newest().await.unwrap().newest.unwrap();
            assert_eq!(newest.number, if is_same { 2 } else { 1 });
        });
    }
}

#[tokio::test]
async fn the_last_ones_are_kept() {
    let folder = TempDir::new().unwrap();
    let mut cluster = Cluster::new(2, table(2, 4, 1, 2));
    let checkpoints = on_disk(folder.path(), 2).given_up_after(Duration::ZERO);
    // Begun, and never finished.
    checkpoints.write_shard(1, &cluster.states()[0]).await.unwrap();
    for clock in 1..=4 {
        WORKERS.iter().for_each(|&worker| cluster.push(worker, clock, 0));
        cluster.checkpoint(&checkpoints).await.unwrap();
    }
    assert_eq!(numbers(folder.path()), [4, 5]);
    // What is newer than the newest whole one may be in the making.
    checkpoints.write_shard(9, &cluster.states()[0]).await.unwrap();
    checkpoints.commit(6, Vec::new(), Vec::new()).await.unwrap();
    assert_eq!(numbers(folder.path()), [4, 5, 6, 9]);
}

#[tokio::test]
async fn what_others_write_meanwhile_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let cluster = Cluster::new(2, table(2, 4, 1, 2));
    let checkpoints = on_disk(folder.path(), 1);
    let slow = checkpoints.begin().await.unwrap();
    let mut entries = Vec::new();
    for state in cluster.states() {
        entries.push(checkpoints.write_shard(slow, &state).await.unwrap());
    }
    let quick = cluster.checkpoint(&checkpoints).await.unwrap();
    assert_eq!(numbers(folder.path()), [slow, quick.number]);
    checkpoints.commit(slow, arrays(), entries).await.unwrap();
}

#[tokio::test]
async fn each_set_of_arrays_has_its_own_last_ones() {
    let folder = TempDir::new().unwrap();
    let cluster = Cluster::new(2, table(2, 4, 1, 2));
    let checkpoints = on_disk(folder.path(), 1);
    for _ in 0..2 {
        for array in [DENSE, SPARSE] {
            cluster.checkpoint_of(&checkpoints, &[array]).await.unwrap();
        }
    }
    assert_eq!(numbers(folder.path()), [3, 4]);
    let sets = [DENSE, SPARSE].map(|array| BTreeSet::from([array]));
    assert_eq!(checkpoints.sets().await.unwrap(), BTreeSet::from(sets.clone()));
    for (set, number) in sets.iter().zip([3, 4]) {
        let found = checkpoints.newest_of(set).await.unwrap();
        assert_eq!(found.newest.unwrap().number, number);
        assert!(found.skipped.is_empty(), "others are not damaged: {:?}", found.skipped);
    }
    assert!(checkpoints.newest_of(&BTreeSet::from([DENSE, SPARSE])).await.unwrap().newest.is_none());
}

#[tokio::test]
async fn files_that_are_not_in_the_place_make_no_checkpoint() {
    let (own, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let cluster = Cluster::new(2, table(2, 4, 1, 2));
    let (here, there) = (on_disk(own.path(), 2), on_disk(other.path(), 2));
    let number = here.begin().await.unwrap();
    let mut entries = Vec::new();
    for (i, state) in cluster.states().iter().enumerate() {
        // As if one server had a folder of the same name on its own disk.
        let place = if i == 1 { &there } else { &here };
        entries.push(place.write_shard(number, state).await.unwrap());
    }
    let error = here.commit(number, arrays(), entries).await.unwrap_err();
    assert!(matches!(error, CheckpointError::NotShared { .. }), "{error}");
    assert!(error.to_string().contains("share"), "{error}");
    assert!(here.newest().await.unwrap().newest.is_none());
}

#[tokio::test]
async fn what_is_given_up_leaves_no_folders() {
    let folder = TempDir::new().unwrap();
    let cluster = Cluster::new(2, table(2, 4, 1, 2));
    let checkpoints = place(folder.path().to_str().unwrap(), 1).unwrap();
    checkpoints.write_shard(1, &cluster.states()[0]).await.unwrap();
    checkpoints.abandon(1).await.unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_place_that_cannot_be_used_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    let inside = file.join("checkpoints");
    let error = place(inside.to_str().unwrap(), 2).unwrap_err().to_string();
    assert!(error.contains(inside.to_str().unwrap()) && !error.contains('\n'), "{error}");
    if !cfg!(any(feature = "s3", feature = "gcs", feature = "azure")) {
        let error = place("s3://bucket/run", 2).unwrap_err().to_string();
        assert!(error.contains("s3://bucket/run") && error.contains("feature"), "{error}");
    }
}

/// Writes checkpoints until it is killed; `PARAPET_CHECKPOINT_CHILD` names the folder.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os("PARAPET_CHECKPOINT_CHILD") else { return };
    let mut cluster = Cluster::new(2, table(2, 4, 1, 3));
    let checkpoints = on_disk(Path::new(&folder), 2);
    for clock in 1.. {
        WORKERS.iter().for_each(|&worker| cluster.push(worker, clock, 0));
        let manifest = cluster.checkpoint(&checkpoints).await.unwrap();
        println!("wrote {}", manifest.number);
    }
}

/// Kill -9 at whatever moment: what was said to be written can be read.
#[tokio::test]
async fn a_killed_writer_leaves_whole_checkpoints() {
    use std::io::{BufRead, BufReader};
    let folder = TempDir::new().unwrap();
    let mut least = 0;
    for round in 0..6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writes_until_it_is_killed", "--nocapture"])
            .env("PARAPET_CHECKPOINT_CHILD", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // After some checkpoints, in the middle of the next.
        for _ in 0..=round {
            let written = lines.by_ref().map(Result::unwrap).find_map(|line| {
                line.rsplit_once("wrote ").and_then(|(_, number)| number.parse::<u64>().ok())
            });
            least = written.expect("it writes");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let checkpoints = on_disk(folder.path(), 2);
        let newest = checkpoints.newest().await.unwrap().newest.unwrap();
        assert!(newest.number >= least, "{} was said to be written, {} is found", least, newest.number);
        for entry in &newest.shards {
            checkpoints.read_shard(newest.number, entry).await.unwrap();
        }
    }
}
