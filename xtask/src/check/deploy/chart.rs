//! The Helm chart, and what it renders.

use super::output;
use crate::prelude::*;

const NAMESPACE: &str = "named-nowhere";
/// Version of Kubernetes' API that everything must fit: the oldest one that the chart takes, and
/// a new one.
const KUBERNETES: [&str; 2] = ["1.30", "1.35"];
const EVERYTHING: &str = "ci/everything-values.yaml";
/// Sets of values that are rendered beside the defaults, one a line. SECURE_POOL is one pool, within
/// TLS.
const VARIANTS: &str = "\
model.discovery=kubernetes,antiAffinity=preferred,frontend.autoscaling.enabled=false
frontend.configSecret=mine,frontend.grpc.enabled=true,frontend.admin.enabled=true
trainer.enabled=true,trainer.leaveWithinSeconds=600
monitoring.dashboard=false,networkPolicy=false
frontend.tls.secretName=own,frontend.grpc.enabled=true,monitoring.serviceMonitor=true
frontend.tls.secretName=own,frontend.configSecret=mine
SECURE_POOL,model.tls.caSecretName=ca,model.discovery=kubernetes,monitoring.serviceMonitor=true";
const SECURE_POOL: &str = "pools[0].name=deployed,pools[0].model=fashion,pools[0].replicas=4,\
    pools[0].minAvailable=2,pools[0].tls.secretName=instances";
/// Values that must be refused, and what has to be said of them.
const MISTAKES: &str = "\
frontendd.replicas=2: frontendd
antiAffinity=maybe: antiAffinity
pools[0].replicas=0: replicas
model.discovery=consul: discovery
monitoring.rules=maybe: rules
frontend.server.listen=0.0.0.0:80: listen
frontend.autoscaling.cpuUtilisation=0: give cpuUtilisation
frontend.admin.enabled=true: frontend.admin.keySha256 is empty
frontend.tenants[0].name=shop: keySha256
frontend.configSecret=mine,frontend.server.max_headers=50: has the whole configuration
frontend.tls.clientCaSecretName=clients: set frontend.tls.secretName
frontend.tls.secretName=own,frontend.tls.clientCrl=true: frontend.tls.clientCrl
frontend.tls.secretName=own,frontend.tls.clientCaSecretName=clients: probes have no certificate
frontend.admin.tls.secretName=own: set frontend.admin.enabled
frontend.server.tls=own: tls
model.tls.caSecretName=ca: no pool has tls
SECURE_POOL: model.tls.caSecretName
SECURE_POOL,model.tls.caSecretName=ca,pools[0].tls.clientCaSecretName=clients\
: asks frontends for a certificate
frontend.configSecret=mine,frontend.admin.enabled=true,frontend.admin.tls.secretName=own,\
frontend.admin.tls.clientCaSecretName=operators,monitoring.serviceMonitor=true: monitoring.tlsConfig";
/// Of the Prometheus operator; a cluster that has them gets them without being asked.
const OPERATORS: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];
const HEADER: &str = "\
# Made from deploy/helm/parapet with its default values, by `cargo xtask check deploy --write`: \
do not edit.
# What needs the Prometheus operator and the dashboard are left out; alerts and dashboard are in \
deploy/prometheus and deploy/grafana.
";

/// Checks the chart; returns what it renders with its default values, with all that these leave
/// out, and for a training.
pub(super) fn check(sh: &Shell, deploy: &Path, write: bool) -> Result<[String; 3]> {
    let helm = python::file_of_wheel("helm", include_str!("unpack_helm.py"))?;
    let chart = deploy.join("helm/parapet");
    output(cmd!(sh, "{helm} lint --strict --quiet {chart}"))?;
    let render_with = |flag: &str, value: &str| {
        let template = cmd!(
            sh,
            "{helm} template parapet {chart} --namespace {NAMESPACE}"
        );
        output(template.arg(flag).arg(value))
    };
    let render = |set: &str| render_with("--set", &set.replace("SECURE_POOL", SECURE_POOL));
    let everything = render_with("--values", &chart.join(EVERYTHING).to_string_lossy())?;
    let default = render("")?;
    for version in KUBERNETES {
        let valid = |what: &str, manifests: &str| {
            validate(sh, deploy, version, manifests)
                .with_context(|| format!("the chart with {what}, Kubernetes {version}"))
        };
        valid(EVERYTHING, &everything)?;
        valid("its defaults", &default)?;
        for set in VARIANTS.lines() {
            valid(set, &render(set)?)?;
        }
    }
    for line in MISTAKES.lines() {
        let (set, complaint) = line
            .split_once(": ")
            .context("a mistake without complaint")?;
        let said = render(set).err();
        let said = said
            .with_context(|| format!("the chart takes the mistake {set}"))?
            .to_string();
        // The command line, which has the values, stands before what is said.
        let (_, said) = said.split_once("Error:").unwrap_or_default();
        ensure!(
            said.contains(complaint),
            "of {set} the chart does not say {complaint:?}, but: {said}"
        );
    }
    let apis = OPERATORS
        .map(|kind| format!("monitoring.coreos.com/v1/{kind}"))
        .join(",");
    let operated = render_with("--api-versions", &apis)?;
    for kind in OPERATORS {
        let line = format!("kind: {kind}\n");
        ensure!(
            operated.contains(&line) && !default.contains(&line),
            "the chart has to make a {kind} where the cluster knows it, and only there"
        );
    }
    ensure!(
        !default.contains(NAMESPACE),
        "what the chart renders by default is for one namespace only"
    );
    let manifests = HEADER.to_owned() + &render("monitoring.dashboard=false")?;
    let file = deploy.join("kubernetes/parapet.yaml");
    if write {
        sh.write_file(&file, &manifests)?;
    }
    ensure!(
        sh.read_file(&file)? == manifests,
        "deploy/kubernetes/parapet.yaml is not what the chart renders: run `cargo xtask check \
         deploy --write`"
    );
    Ok([default, everything, render("trainer.enabled=true")?])
}

fn validate(sh: &Shell, deploy: &Path, version: &str, manifests: &str) -> Result<()> {
    let python = python::program("deploy", "python")?;
    let (script, schemas) = (include_str!("validate.py"), deploy.join("schemas"));
    output(cmd!(sh, "{python} -c {script} {version} {schemas}").stdin(manifests))?;
    Ok(())
}
