//! Unpacks the parts of the wheels that a component keeps.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use zip::ZipArchive;

use super::components::Component;
use super::download;

type Wheel = ZipArchive<BufReader<File>>;

/// Unpacks what `component` keeps of the wheels in the folder `wheels` into the new folder `into`.
pub(super) fn unpack(component: &Component, wheels: &Path, into: &Path) -> Result<()> {
    let mut opened = open_all(wheels)?;
    download::require_all(component, opened.len())?;
    let bar = ProgressBar::new_spinner();
    let style = "{prefix}: unpacking {spinner} {bytes}";
    bar.set_style(
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.set_prefix(component.title);
    for wheel in &mut opened {
        extract(component, wheel, into, &bar)?;
    }
    bar.finish_and_clear();

    for (path, contents) in component.written {
        fs::write(into.join(path), contents).with_context(|| format!("cannot write {path}"))?;
    }
    for (path, target) in component.links {
        std::os::unix::fs::symlink(target, into.join(path))
            .with_context(|| format!("cannot link {path}"))?;
    }
    for rule in component.rules {
        ensure!(
            into.join(rule.to).exists(),
            "the wheels of {} have no {}: the pinned layout has changed",
            component.title,
            rule.from
        );
    }
    Ok(())
}

fn open_all(wheels: &Path) -> Result<Vec<Wheel>> {
    let entries =
        fs::read_dir(wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()
        .with_context(|| format!("cannot read {}", wheels.display()))?;
    let is_wheel = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    paths
        .iter()
        .filter(is_wheel)
        .map(|path| {
            let damaged = || format!("{} is damaged", path.display());
            ZipArchive::new(BufReader::new(File::open(path).with_context(damaged)?))
                .with_context(damaged)
        })
        .collect()
}

fn extract(component: &Component, wheel: &mut Wheel, into: &Path, bar: &ProgressBar) -> Result<()> {
    for index in 0..wheel.len() {
        let mut entry = wheel.by_index(index).context("a wheel is damaged")?;
        // A name that would leave the folder has no enclosed form and is skipped, as is all that no
        // rule names.
        let Some(path) = entry.enclosed_name() else {
            continue;
        };
        let Some(destination) = path.to_str().and_then(|path| component.destination(path)) else {
            continue;
        };
        if entry.is_dir() {
            continue;
        }
        let destination = into.join(destination);
        if let Some(parent) = destination.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let file = File::create(&destination)
            .with_context(|| format!("cannot create {}", destination.display()))?;
        let unpacked = || format!("cannot unpack {}", destination.display());
        let mut writer = BufWriter::with_capacity(1 << 20, file);
        io::copy(&mut entry, &mut bar.wrap_write(&mut writer)).with_context(unpacked)?;
        writer.flush().with_context(unpacked)?;
        if entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0) {
            let runnable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&destination, runnable).with_context(unpacked)?;
        }
    }
    Ok(())
}
