//! The Helm chart, and what it renders.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::output;
use super::tools::Tools;
use crate::processes::run_with_input;
use crate::workspace;

/// Where the chart is rendered for.
const NAMESPACE: &str = "named-nowhere";
const MISSING: &str = "helm cannot be started";
/// Version of Kubernetes' API that everything must fit: the oldest one that the chart takes, and
/// a new one.
const KUBERNETES: [&str; 2] = ["1.30", "1.35"];
const EVERYTHING: &str = "ci/everything-values.yaml";
/// Sets of values that are rendered beside the defaults.
const VARIANTS: [&[&str]; 7] = [
    &[
        "model.discovery=kubernetes",
        "antiAffinity=preferred",
        "frontend.autoscaling.enabled=false",
    ],
    &[
        "frontend.configSecret=mine",
        "frontend.grpc.enabled=true",
        "frontend.admin.enabled=true",
    ],
    &["trainer.enabled=true", "trainer.leaveWithinSeconds=600"],
    &["monitoring.dashboard=false", "networkPolicy=false"],
    &[
        "frontend.tls.secretName=own",
        "frontend.grpc.enabled=true",
        "monitoring.serviceMonitor=true",
    ],
    &["frontend.tls.secretName=own", "frontend.configSecret=mine"],
    &[
        SECURE_POOL,
        "model.tls.caSecretName=ca",
        "model.discovery=kubernetes",
        "monitoring.serviceMonitor=true",
    ],
];
/// Pools of which there is one alone, within TLS.
const SECURE_POOL: &str = "pools[0].name=deployed,pools[0].model=fashion,pools[0].replicas=4,pools[0].minAvailable=2,\
                           pools[0].tls.secretName=instances";
/// Values that must be refused, and what has to be said of them.
const MISTAKES: [(&[&str], &str); 19] = [
    (&["frontendd.replicas=2"], "frontendd"),
    (&["antiAffinity=maybe"], "antiAffinity"),
    (&["pools[0].replicas=0"], "replicas"),
    (&["model.discovery=consul"], "discovery"),
    (&["monitoring.rules=maybe"], "rules"),
    (&["frontend.server.listen=0.0.0.0:80"], "listen"),
    (
        &["frontend.autoscaling.cpuUtilisation=0"],
        "give cpuUtilisation",
    ),
    (
        &["frontend.admin.enabled=true"],
        "frontend.admin.keySha256 is empty",
    ),
    (&["frontend.tenants[0].name=shop"], "keySha256"),
    (
        &["frontend.configSecret=mine,frontend.server.max_headers=50"],
        "has the whole configuration",
    ),
    (
        &["frontend.tls.clientCaSecretName=clients"],
        "set frontend.tls.secretName",
    ),
    (
        &["frontend.tls.secretName=own,frontend.tls.clientCrl=true"],
        "frontend.tls.clientCrl",
    ),
    (
        &["frontend.tls.secretName=own,frontend.tls.clientCaSecretName=clients"],
        "probes have no certificate",
    ),
    (
        &["frontend.admin.tls.secretName=own"],
        "set frontend.admin.enabled",
    ),
    (&["frontend.server.tls=own"], "tls"),
    (&["model.tls.caSecretName=ca"], "no pool has tls"),
    (&[SECURE_POOL], "model.tls.caSecretName"),
    (
        &[
            SECURE_POOL,
            "model.tls.caSecretName=ca,pools[0].tls.clientCaSecretName=clients",
        ],
        "asks frontends for a certificate",
    ),
    (
        &[
            "frontend.configSecret=mine,frontend.admin.enabled=true,frontend.admin.tls.secretName=own",
            "frontend.admin.tls.clientCaSecretName=operators,monitoring.serviceMonitor=true",
        ],
        "monitoring.tlsConfig",
    ),
];
/// Of the Prometheus operator; a cluster that has them gets them without being asked.
const OPERATORS: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];
const HEADER: &str = "# Made from deploy/helm/parapet with its default values, by `cargo xtask \
    check deploy --write`: do not edit.\n\
                      # What needs the Prometheus operator and the dashboard are left out; alerts \
                      and dashboard are in deploy/prometheus and deploy/grafana.\n";

/// Checks the chart; what it renders with its default values, with all that these leave out, and
/// for a training.
pub(super) fn check(tools: &Tools, deploy: &Path, write: bool) -> Result<[String; 3]> {
    let chart = deploy.join("helm/parapet");
    output(
        Command::new(&tools.helm)
            .args(["lint", "--strict", "--quiet"])
            .arg(&chart),
        MISSING,
    )?;
    let render_with = |flags: &[&str], sets: &[&str]| {
        let mut command = Command::new(&tools.helm);
        command
            .args(["template", "parapet"])
            .arg(&chart)
            .args(["--namespace", NAMESPACE])
            .args(flags);
        output(
            command.args(sets.iter().flat_map(|set| ["--set", set])),
            MISSING,
        )
    };
    let render = |sets: &[&str]| render_with(&[], sets);
    let everything = chart.join(EVERYTHING);
    let everything = render_with(&["--values", &everything.to_string_lossy()], &[])?;
    let apis = OPERATORS.map(|kind| format!("monitoring.coreos.com/v1/{kind}"));
    let operated = render_with(&["--api-versions", &apis.join(",")], &[])?;
    for version in KUBERNETES {
        validate(tools, deploy, version, &everything)
            .with_context(|| format!("the chart with {EVERYTHING}, Kubernetes {version}"))?;
        for sets in std::iter::once(&[][..]).chain(VARIANTS) {
            validate(tools, deploy, version, &render(sets)?)
                .with_context(|| format!("the chart with {sets:?}, Kubernetes {version}"))?;
        }
    }
    for (mistake, complaint) in MISTAKES {
        let said = render(mistake)
            .err()
            .with_context(|| format!("the chart takes the mistake {mistake:?}"))?;
        let said = format!("{said:#}");
        // The command line, which has the values, stands before what is said.
        let (_, said) = said.split_once("Error:").unwrap_or_default();
        ensure!(
            said.contains(complaint),
            "of {mistake:?} the chart does not say {complaint:?}, but: {said}"
        );
    }
    let rendered = render(&[])?;
    for kind in OPERATORS {
        let line = format!("kind: {kind}\n");
        ensure!(
            operated.contains(&line) && !rendered.contains(&line),
            "the chart has to make a {kind} where the cluster knows it, and only there"
        );
    }
    ensure!(
        !rendered.contains(NAMESPACE),
        "what the chart renders by default is for one namespace only"
    );
    let manifests = HEADER.to_owned() + &render(&["monitoring.dashboard=false"])?;
    let file = deploy.join("kubernetes/parapet.yaml");
    if write {
        workspace::write(&file, manifests)?;
    } else if fs::read_to_string(&file).unwrap_or_default() != manifests {
        bail!(
            "deploy/kubernetes/parapet.yaml is not what the chart renders: run `cargo xtask check \
                deploy --write`"
        );
    }
    Ok([rendered, everything, render(&["trainer.enabled=true"])?])
}

fn validate(tools: &Tools, deploy: &Path, version: &str, manifests: &str) -> Result<()> {
    let mut command = Command::new(&tools.python);
    command
        .args(["-c", include_str!("validate.py"), version])
        .arg(deploy.join("schemas"));
    let output = run_with_input(&mut command, manifests).context("cannot start python3")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
