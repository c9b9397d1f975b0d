//! Where things lie in the checkout.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The root of the checkout: the folder above this crate's.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// The git-ignored folder that holds the native libraries.
pub(crate) fn native() -> PathBuf {
    root().join(".native")
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |target| root().join(target))
}

/// Where the demo keeps what it makes.
pub(crate) fn demo() -> PathBuf {
    root().join(".parapet/demo")
}

/// Says what comes next.
pub(crate) fn step(what: &str) {
    eprintln!("==> {what}");
}

/// Writes a file; an error names it.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a file of text; an error names it.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Makes a folder with those above it; an error names it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}
