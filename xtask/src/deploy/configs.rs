//! Configurations of the frontend that stand in `deploy/`: the frontend itself reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::output;
use crate::sample::{self, Kind, write_model};

/// Checks the compose file's configuration and the chart's, over models of these names.
pub(super) fn check(deploy: &Path, folder: &Path, rendered: &str) -> Result<()> {
    sample::build()?;
    let models = folder.join("models");
    write_model(&models, "fashion", Kind::Deployed)?;
    write_model(&models, "fashion-parity", Kind::Parity { deployed: "fashion", encoder: "concat" })?;
    let read = |name: &str| {
        let file = deploy.join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    for (name, at, text) in [
        ("compose.toml", "/models", read("compose/parapet.toml")?),
        ("systemd.toml", "/var/lib/parapet/models", read("systemd/parapet.toml")?),
        ("chart.toml", "/models", of_chart(rendered)?),
    ] {
        let written = format!("path = {at:?}");
        ensure!(text.contains(&written), "{name}: the models are not at {at}");
        let path = folder.join(name);
        let text = text.replace(&written, "path = \"models\"");
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let mut frontend = Command::new(sample::binary("parapet-frontend"));
        output(frontend.arg("--check").arg("--config").arg(&path), "the frontend cannot be started")?;
    }
    Ok(())
}

/// `parapet.toml` out of the rendered ConfigMap.
fn of_chart(rendered: &str) -> Result<String> {
    let (_, block) = rendered.split_once("  parapet.toml: |\n").context("no parapet.toml in the chart")?;
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    Ok(lines.map(|line| line.trim_start().to_owned() + "\n").collect())
}
