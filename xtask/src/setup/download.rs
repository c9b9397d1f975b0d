//! Downloads wheels with the user's pip, which knows the user's mirrors, proxies and certificates.

use super::components::Component;
use crate::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs;
use std::process::{Command, Stdio};

const REDRAW: Duration = Duration::from_millis(100);

/// Downloads `component`'s wheels into `wheels`; `work` is a folder for temporary files on
/// the same disk.
pub(super) fn wheels(sh: &Shell, component: &Component, work: &Path, wheels: &Path) -> Result<()> {
    require(&[("python3", "python3 python3-pip")])?;
    let temporary = sh.create_dir(work.join("pip"))?;
    let requirements = work.join("requirements.txt");
    sh.write_file(&requirements, component.requirements)?;
    // pip takes the pinned CPython 3.11 wheels whatever Python the user has.
    let glibc = (5..=28).rev();
    let platforms = glibc.map(|minor| format!("--platform=manylinux_2_{minor}_x86_64"));
    let pip = cmd!(
        sh,
        "python3 -m pip download --no-deps --only-binary=:all: --require-hashes --no-cache-dir
            --disable-pip-version-check --no-input --progress-bar=off --quiet --retries=2
            --implementation=cp --python-version=3.11 --abi=cp311 --abi=none {platforms...}
            --platform=manylinux1_x86_64 --dest {wheels} --requirement {requirements}"
    );
    let mut child = Command::from(pip)
        // pip downloads here first and moves the wheels at the end: on the same disk, and where we
        // can watch it grow.
        .env("TMPDIR", &temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start python3")?;
    let bar = progress_bar(component)?;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for pip")? {
            break status;
        }
        let bytes = folder_bytes(&temporary) + folder_bytes(wheels);
        bar.set_position(bytes.min(component.download_bytes));
        std::thread::sleep(REDRAW);
    };
    bar.finish_and_clear();
    ensure!(
        status.success(),
        "pip could not download {} (see above): it needs a package index (PIP_INDEX_URL names a \
         mirror), the pinned wheels in it, python3-pip, and room on the disk",
        component.title
    );
    Ok(())
}

fn progress_bar(component: &Component) -> Result<ProgressBar> {
    let bar = ProgressBar::new(component.download_bytes);
    if bar.is_hidden() {
        let megabytes = component.download_bytes / 1_000_000;
        eprintln!("{}: downloading {megabytes} MB", component.title);
    }
    let style =
        "{prefix}: downloading [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style)?);
    bar.set_prefix(component.title);
    Ok(bar)
}

/// Bytes of all files under `folder`. Files come and go meanwhile, so what cannot be read
/// counts as nothing.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}
