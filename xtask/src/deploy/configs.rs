//! Configurations of the frontend that stand in `deploy/`: the frontend itself reads them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::output;
use crate::openssl;
use crate::sample::{self, Kind, write_model};
use crate::workspace;

/// Where the chart mounts the frontend's certificates: a folder for each table that names some.
const CERTIFICATES: [&str; 3] = [
    "/etc/parapet-tls/server/",
    "/etc/parapet-tls/admin/",
    "/etc/parapet-tls/instances/",
];

/// Checks the compose file's configuration, that of plain hosts, and those of the rendered charts,
/// over models of these names and one certificate.
pub(super) fn check(deploy: &Path, folder: &Path, rendered: &[String]) -> Result<()> {
    sample::build()?;
    let models = folder.join("models");
    write_model(&models, "fashion", Kind::Deployed)?;
    write_model(
        &models,
        "fashion-parity",
        Kind::Parity {
            deployed: "fashion",
            encoder: "concat",
        },
    )?;
    write_certificates(&folder.join("tls"))?;
    let read = |name: &str| {
        let file = deploy.join(name);
        workspace::read(&file)
    };
    let mut configurations = vec![
        (
            "compose.toml".to_owned(),
            "/models",
            read("compose/parapet.toml")?,
        ),
        (
            "systemd.toml".to_owned(),
            "/var/lib/parapet/models",
            read("systemd/parapet.toml")?,
        ),
    ];
    for (number, rendered) in rendered.iter().enumerate() {
        configurations.push((
            format!("chart-{number}.toml"),
            "/models",
            of_chart(rendered)?,
        ));
    }
    for (name, at, text) in configurations {
        let written = format!("path = {at:?}");
        ensure!(
            text.contains(&written),
            "{name}: the models are not at {at}"
        );
        let path = folder.join(&name);
        let text = text.replace(&written, "path = \"models\"");
        let text = CERTIFICATES
            .iter()
            .fold(text, |text, mounted| text.replace(mounted, "tls/"));
        workspace::write(&path, text)?;
        let mut frontend = Command::new(sample::binary("parapet-frontend"));
        output(
            frontend.arg("--check").arg("--config").arg(&path),
            "the frontend cannot be started",
        )?;
    }
    Ok(())
}

/// A certificate that is its own authority, under the names that a Secret has them by.
fn write_certificates(folder: &Path) -> Result<()> {
    workspace::make_folder(folder)?;
    openssl::self_signed(folder, "tls")?;
    openssl::revocation_list(folder, "tls")?;
    for (from, to) in [("tls.crt", "ca.crt"), ("tls.crl", "ca.crl")] {
        fs::copy(folder.join(from), folder.join(to))
            .with_context(|| format!("cannot write {to}"))?;
    }
    Ok(())
}

/// `parapet.toml` out of the rendered ConfigMap or Secret.
fn of_chart(rendered: &str) -> Result<String> {
    let (_, block) = rendered
        .split_once("  parapet.toml: |\n")
        .context("no parapet.toml in the chart")?;
    let lines = block
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    Ok(lines
        .map(|line| line.trim_start().to_owned() + "\n")
        .collect())
}
