//! The load generator as benchmarks use it: the demo's images, and a report to read.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::demo::binary;
use crate::resources::pinned;
use crate::{cargo, models, native};

/// Builds the serving side, unless its optimised binaries are to be used as they are, and makes
/// sure that the demo's models are there.
pub(super) fn prepare(build: bool) -> Result<()> {
    if build {
        native::run(&native::Args { serving_only: true })?;
        cargo::build_serving()?;
    }
    ensure!(
        models::repository()
            .join("fashion-parity/model.toml")
            .is_file(),
        "no models; run `cargo xtask demo` first"
    );
    Ok(())
}

/// One run of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) url: &'a str,
    pub(super) model: &'a str,
    /// Requests/s.
    pub(super) rate: f64,
    pub(super) seconds: u32,
    pub(super) more: &'a [&'a str],
}

impl Load<'_> {
    /// Its report, which is written to `path`; on one core if that is said.
    pub(super) fn run(&self, core: Option<usize>, path: &Path) -> Result<Value> {
        let status = pinned(binary("parapet-loadgen"), core)
            .args(["run", "--target", self.url, "--model", self.model])
            .args([
                "--rate",
                &self.rate.to_string(),
                "--duration",
                &self.seconds.to_string(),
            ])
            .args(self.more)
            .arg("--images")
            .arg(models::data().join("t10k-images-idx3-ubyte.gz"))
            .arg("--json")
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot start parapet-loadgen")?;
        ensure!(status.success(), "parapet-loadgen failed ({status})");
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no report", path.display()))
    }
}
