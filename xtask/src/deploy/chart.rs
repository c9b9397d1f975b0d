//! The Helm chart, and what it renders.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::output;
use super::tools::Tools;

const MISSING: &str = "helm cannot be started";
/// Version of Kubernetes' API that everything must fit: the oldest one that the chart takes, and a new one.
const KUBERNETES: [&str; 2] = ["1.30", "1.35"];
/// What is rendered beside the defaults.
const VARIANTS: [&[&str]; 3] = [
    &["trainer.enabled=true"],
    &["model.discovery=kubernetes", "antiAffinity=preferred", "frontend.autoscaling.enabled=false"],
    &[
        "monitoring.serviceMonitor=false",
        "monitoring.rules=false",
        "monitoring.dashboard=false",
        "networkPolicy=false",
    ],
];
/// Values that must be refused.
const MISTAKES: [&str; 4] =
    ["frontendd.replicas=2", "antiAffinity=maybe", "pools[0].replicas=0", "model.discovery=consul"];
const HEADER: &str = "# Made from deploy/helm/parapet with its default values, by `cargo xtask check-deploy --write`: do not edit.\n\
                      # The alerts and the dashboard are left out; they are in deploy/prometheus and deploy/grafana.\n";

/// Checks the chart; what it renders with its default values.
pub(super) fn check(tools: &Tools, deploy: &Path, write: bool) -> Result<String> {
    let chart = deploy.join("helm/parapet");
    output(Command::new(&tools.helm).args(["lint", "--strict", "--quiet"]).arg(&chart), MISSING)?;
    let render = |sets: &[&str]| {
        let mut command = Command::new(&tools.helm);
        command.args(["template", "parapet"]).arg(&chart).args(["--namespace", "serving"]);
        output(command.args(sets.iter().flat_map(|set| ["--set", set])), MISSING)
    };
    for version in KUBERNETES {
        for sets in std::iter::once(&[][..]).chain(VARIANTS) {
            validate(tools, deploy, version, &render(sets)?)
                .with_context(|| format!("the chart with {sets:?}, Kubernetes {version}"))?;
        }
    }
    for mistake in MISTAKES {
        ensure!(render(&[mistake]).is_err(), "the chart takes the mistaken value {mistake}");
    }
    let rendered = render(&[])?;
    let manifests = HEADER.to_owned() + &render(&["monitoring.rules=false", "monitoring.dashboard=false"])?;
    let file = deploy.join("kubernetes/parapet.yaml");
    if write {
        fs::write(&file, manifests).with_context(|| format!("cannot write {}", file.display()))?;
    } else if fs::read_to_string(&file).unwrap_or_default() != manifests {
        bail!(
            "deploy/kubernetes/parapet.yaml is not what the chart renders: run `cargo xtask check-deploy --write`"
        );
    }
    Ok(rendered)
}

fn validate(tools: &Tools, deploy: &Path, version: &str, manifests: &str) -> Result<()> {
    let mut child = Command::new(&tools.python)
        .args(["-c", include_str!("validate.py"), version])
        .arg(deploy.join("schemas"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start python3")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(manifests.as_bytes()).context("cannot write to python3")?;
    drop(stdin);
    let output = child.wait_with_output().context("cannot wait for python3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
