//! A disk that is full: a clear error, and the checkpoints that are there stay.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use parapet_parameter_server_checkpoint::{CheckpointError, place};
use support::{Cluster, WORKERS, table};
use tempfile::TempDir;

const CHILD: &str = "PARAPET_FULL_DISK_CHILD";

/// On a file system of 256 KiB; run by the other test.
#[tokio::test]
async fn on_a_small_disk() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let mut cluster = Cluster::new(2, table(2, 4, 1, 3));
    let checkpoints = place(folder.to_str().unwrap(), 100).unwrap();
    cluster.checkpoint(&checkpoints).await.unwrap();
    fs::write(folder.join("ballast"), vec![1; 150_000]).unwrap();
    let (mut clock, mut last) = (0, 1);
    let error = loop {
        clock += 1;
        assert!(clock < 1_000, "the disk is not full");
        WORKERS.iter().for_each(|&worker| cluster.push(worker, clock, 0));
        match cluster.checkpoint(&checkpoints).await {
            Ok(manifest) => last = manifest.number,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CheckpointError::Full { .. }), "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert_eq!(checkpoints.newest().await.unwrap().newest.unwrap().number, last);
    // With room again, it goes on.
    checkpoints.abandon(last + 1).await.unwrap();
    fs::remove_file(folder.join("ballast")).unwrap();
    assert!(cluster.checkpoint(&checkpoints).await.unwrap().number > last);
    println!("held out");
}

#[test]
fn a_full_disk_leaves_what_is_there() {
    let folder = TempDir::new().unwrap();
    let script = "mount -t tmpfs -o size=256k tmpfs \"$1\" || exit 99; shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_small_disk", "--nocapture"])
        .env(CHILD, folder.path())
        .output();
    let said = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    match (&output, said) {
        (Ok(output), Ok(said)) if output.status.success() && said.contains("held out") => {}
        // 1: unshare itself may not.
        (Ok(output), _) if output.status.code() == Some(99) || output.stdout.is_empty() => {
            eprintln!("skipped: a file system cannot be mounted here: {output:?}");
        }
        (Err(error), _) => eprintln!("skipped: {error}"),
        (output, _) => panic!("{output:?}"),
    }
}
