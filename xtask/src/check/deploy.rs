//! `cargo xtask check deploy`: what is in `deploy/` holds together, as far as can be told without a
//! cluster or container engine: systemd reads the units, docker-compose its file, Helm the chart in
//! several variants; what it renders fits Kubernetes' API schemas and those in `deploy/schemas`;
//! our programs read their configurations and arguments in all that. Images are not built.

use super::write_certificate;
use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write what the chart renders into deploy/kubernetes, instead of comparing
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    require(&[
        ("systemd-analyze", "systemd"),
        ("docker-compose", "--no-install-recommends docker-compose"),
    ])?;
    let (sh, folder) = (shell()?, scratch("check/deploy"));
    let deploy = root().join("deploy");
    check_units(&sh, &deploy, &folder)?;
    let compose = deploy.join("compose/compose.yaml");
    output(cmd!(sh, "docker-compose -f {compose} config -q"))?;
    let rendered = check_chart(&sh, &deploy, args.write)?;
    check_configurations(&sh, &deploy, &folder, &rendered)?;
    check_arguments(&sh, &rendered)?;
    println!(
        "deploy/: units, compose file, chart, configurations and arguments are sound; images were \
         not built"
    );
    Ok(())
}

fn check_units(sh: &Shell, deploy: &Path, folder: &Path) -> Result<()> {
    let files = sh.read_dir(deploy.join("systemd"))?;
    let is_unit = |file: &&std::path::PathBuf| file.extension() == Some("service".as_ref());
    let units: Vec<_> = files.iter().filter(is_unit).collect();
    ensure!(!units.is_empty(), "no units in deploy/systemd");
    for unit in units {
        let copy = folder.join(unit.file_name().unwrap_or_default());
        // The programs are not installed here: another one stands for them.
        let text = sh.read_file(unit)?.replace("/usr/bin/parapet-frontend", "/bin/true");
        sh.write_file(&copy, text.replace("/usr/bin/parapet-instance", "/bin/true"))?;
        let verify = cmd!(sh, "systemd-analyze verify {copy}").quiet();
        let verified = verify.ignore_status().output()?;
        // It succeeds in spite of unknown settings and only mentions them, other units' among them.
        let said = String::from_utf8_lossy(&verified.stderr);
        let is_sound = verified.status.success() && !said.contains("parapet");
        ensure!(is_sound, "{}: {said}", unit.display());
        // Of 100; "OK" ends at 30.
        let options = ["--no-pager", "--offline=true", "--threshold", "20"];
        output(cmd!(sh, "systemd-analyze security {options...} {copy}"))?;
    }
    Ok(())
}

/// Has the frontend read the compose file's configuration, that of plain hosts, and those of the
/// rendered charts, over models of these names and one certificate.
fn check_configurations(
    sh: &Shell,
    deploy: &Path,
    folder: &Path,
    rendered: &[String],
) -> Result<()> {
    build_for_checks()?;
    cluster::write_models(sh, &folder.join("models"), "stack")?;
    let tls = folder.join("tls");
    write_certificate(sh, &tls, "tls")?;
    // Names that a Secret has them by.
    for (from, to) in [("tls.crt", "ca.crt"), ("tls.crl", "ca.crl")] {
        sh.copy_file(tls.join(from), tls.join(to))?;
    }
    let compose = sh.read_file(deploy.join("compose/parapet.toml"))?;
    let systemd = sh.read_file(deploy.join("systemd/parapet.toml"))?;
    let mut configurations = vec![("/models", compose), ("/var/lib/parapet/models", systemd)];
    for rendered in rendered {
        configurations.push(("/models", configuration_of(rendered)?));
    }
    for (number, (models, text)) in configurations.into_iter().enumerate() {
        let written = format!("path = {models:?}");
        ensure!(text.contains(&written), "the models are not at {models}:\n{text}");
        let mut text = text.replace(&written, "path = \"models\"");
        for table in ["server", "admin", "instances"] {
            text = text.replace(&format!("/etc/parapet-tls/{table}/"), "tls/");
        }
        let frontend = debug("parapet-frontend");
        let file = folder.join(format!("configuration-{number}.toml"));
        sh.write_file(&file, text)?;
        output(cmd!(sh, "{frontend} --check --config {file}"))?;
    }
    Ok(())
}

fn configuration_of(rendered: &str) -> Result<String> {
    let block = rendered.split_once("  parapet.toml: |\n");
    let (_, block) = block.context("no parapet.toml in the chart")?;
    let is_within = |line: &&str| line.is_empty() || line.starts_with("    ");
    let own = block.lines().take_while(is_within).map(|line| line.trim_start().to_owned() + "\n");
    Ok(own.collect())
}

const PROGRAMS: [(&str, &str); 3] = [
    ("parapet-frontend", "parapet-frontend"),
    ("parapet-instance", "parapet-instance"),
    ("parapet-trainer", "parity-trainer"),
];

/// Gives the programs the arguments of all containers, and `--help` after them: what they do not
/// know they refuse before that.
fn check_arguments(sh: &Shell, rendered: &[String]) -> Result<()> {
    for (image, arguments) in rendered.iter().flat_map(|manifests| containers(manifests)) {
        let named = PROGRAMS.iter().find(|(part, _)| image.contains(part));
        let (_, program) = named.with_context(|| format!("no program is known in {image}"))?;
        let file = debug(program);
        ensure!(file.is_file(), "run `cargo build --workspace --bin {program}`");
        let arguments: Vec<String> =
            serde_json::from_str(arguments).with_context(|| format!("{program}: {arguments}"))?;
        output(cmd!(sh, "{file} {arguments...} --help"))?;
    }
    Ok(())
}

fn containers(manifests: &str) -> Vec<(&str, &str)> {
    let mut image = "";
    let mut found = Vec::new();
    for line in manifests.lines().map(str::trim) {
        if let Some(name) = line.trim_start_matches("- ").strip_prefix("image: ") {
            image = name;
        } else if let Some(arguments) = line.strip_prefix("args: ") {
            found.push((image, arguments));
        }
    }
    found
}

const NAMESPACE: &str = "named-nowhere";
/// Versions of Kubernetes' API that all must fit: the oldest that the chart takes, and a new one.
const KUBERNETES: [&str; 2] = ["1.30", "1.35"];
const EVERYTHING: &str = "ci/everything-values.yaml";
/// Sets of values rendered beside the defaults, one a line. SECURE_POOL is one pool, within TLS.
const VARIANTS: &str = include_str!("deploy/variants.txt");
const SECURE_POOL: &str = "pools[0].name=deployed,pools[0].model=fashion,pools[0].replicas=4,\
    pools[0].minAvailable=2,pools[0].tls.secretName=instances";
/// Values that must be refused, and what has to be said of them.
const MISTAKES: &str = include_str!("deploy/mistakes.txt");
/// Of the Prometheus operator; a cluster that has them gets them without being asked.
const OPERATORS: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];
const HEADER: &str = "\
# Made from deploy/helm/parapet with its default values, by `cargo xtask check deploy --write`: \
do not edit.
# What needs the Prometheus operator and the dashboard are left out; alerts and dashboard are in \
deploy/prometheus and deploy/grafana.
";

/// Checks the chart; returns what it renders by default, with all else, and for a training.
fn check_chart(sh: &Shell, deploy: &Path, write: bool) -> Result<[String; 3]> {
    let helm = native().join("python/helm/helm");
    let python = python::program("helm", "python")?;
    if !helm.is_file() {
        let unpack = include_str!("deploy/unpack_helm.py");
        output(cmd!(sh, "{python} -c {unpack} {helm}"))?;
    }
    let python = python::program("deploy", "python")?;
    let (script, schemas) = (include_str!("deploy/validate.py"), deploy.join("schemas"));
    let chart = deploy.join("helm/parapet");
    output(cmd!(sh, "{helm} lint --strict --quiet {chart}"))?;
    let render_with = |flag: &str, value: &str| {
        let template = cmd!(sh, "{helm} template parapet {chart} {flag} {value}");
        output(template.args(["--namespace", NAMESPACE]))
    };
    let render = |set: &str| render_with("--set", &set.replace("SECURE_POOL", SECURE_POOL));
    let everything = render_with("--values", &chart.join(EVERYTHING).to_string_lossy())?;
    let default = render("")?;
    for version in KUBERNETES {
        let valid = |what: &str, manifests: &str| {
            output(cmd!(sh, "{python} -c {script} {version} {schemas}").stdin(manifests))
                .with_context(|| format!("the chart with {what}, Kubernetes {version}"))
        };
        valid(EVERYTHING, &everything)?;
        valid("its defaults", &default)?;
        for set in VARIANTS.lines() {
            valid(set, &render(set)?)?;
        }
    }
    for line in MISTAKES.lines() {
        let (set, complaint) = line.split_once(": ").context("a mistake without complaint")?;
        let said = render(set).err().map(|error| error.to_string());
        let said = said.with_context(|| format!("the chart takes the mistake {set}"))?;
        // The command line, which has the values, stands before what is said.
        let (_, said) = said.split_once("Error:").unwrap_or_default();
        ensure!(said.contains(complaint), "{set}: not {complaint:?}, but: {said}");
    }
    let apis = OPERATORS.map(|kind| format!("monitoring.coreos.com/v1/{kind}"));
    let operated = render_with("--api-versions", &apis.join(","))?;
    for kind in OPERATORS {
        let line = format!("kind: {kind}\n");
        let only_there = operated.contains(&line) && !default.contains(&line);
        ensure!(only_there, "{kind}: where it is known, and only there");
    }
    ensure!(!default.contains(NAMESPACE), "the chart's defaults are for one namespace only");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_with_their_image() {
        let manifests = "- image: etcd\n  command: [etcd]\n- name: a\n  image: \
            r/parapet-instance:1\n  args: [\"--model\",\"m\"]\n";
        assert_eq!(containers(manifests), [("r/parapet-instance:1", "[\"--model\",\"m\"]")]);
    }
}
