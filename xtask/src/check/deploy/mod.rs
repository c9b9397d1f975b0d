//! `cargo xtask check deploy`: what is in `deploy/` holds together, as far as that can be told
//! without a cluster or a container engine.
//!
//! | what | by |
//! |---|---|
//! | systemd units | `systemd-analyze verify`, and `security` with a bound |
//! | the compose file | `docker-compose config` |
//! | the chart | Helm's own `lint` and `template`, in several variants |
//! | what the chart renders | the schemas of Kubernetes' API, and those in `deploy/schemas` |
//! | `deploy/kubernetes/` | equal to what the chart renders |
//! | configurations of the frontend within all that | `parapet-frontend --check` |
//! | arguments of our programs within the chart | the programs; the trainer must have been built |
//!
//! Images are not built.

mod chart;

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
    cmd!(
        sh,
        "docker-compose -f {deploy}/compose/compose.yaml config -q"
    )
    .quiet()
    .run()?;
    let rendered = chart::check(&sh, &deploy, args.write)?;
    check_configurations(&sh, &deploy, &folder, &rendered)?;
    check_arguments(&sh, &rendered)?;
    println!(
        "deploy/: units, compose file, chart, configurations and arguments are sound; images were \
         not built"
    );
    Ok(())
}

/// Returns a command's standard output; an error has its whole output.
fn output(command: Cmd<'_>) -> Result<String> {
    let line = command.to_string();
    let output = command.quiet().ignore_status().output()?;
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(
        output.status.success(),
        "{line}: {}",
        (stdout + &stderr).trim()
    );
    Ok(stdout)
}

fn check_units(sh: &Shell, deploy: &Path, folder: &Path) -> Result<()> {
    let files = sh.read_dir(deploy.join("systemd"))?;
    let is_unit = |file: &&std::path::PathBuf| file.extension() == Some("service".as_ref());
    let units: Vec<_> = files.iter().filter(is_unit).collect();
    ensure!(!units.is_empty(), "no units in deploy/systemd");
    for unit in units {
        let copy = folder.join(unit.file_name().unwrap_or_default());
        // The programs are not installed here: another one stands for them.
        let text = sh
            .read_file(unit)?
            .replace("/usr/bin/parapet-frontend", "/bin/true");
        sh.write_file(
            &copy,
            text.replace("/usr/bin/parapet-instance", "/bin/true"),
        )?;
        let verify = cmd!(sh, "systemd-analyze verify {copy}")
            .quiet()
            .ignore_status();
        let verified = verify.output()?;
        // It succeeds in spite of unknown settings, which it only mentions, and mentions those of
        // other units.
        let said = String::from_utf8_lossy(&verified.stderr);
        let is_sound = verified.status.success() && !said.contains("parapet");
        ensure!(is_sound, "{}: {said}", unit.display());
        // Of 100; "OK" ends at 30.
        output(cmd!(
            sh,
            "systemd-analyze security --no-pager --offline=true --threshold 20 {copy}"
        ))?;
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
    cluster::write_models(sh, &folder.join("models"), "concat")?;
    let tls = folder.join("tls");
    write_certificate(sh, &tls, "tls")?;
    // Names that a Secret has them by.
    for (from, to) in [("tls.crt", "ca.crt"), ("tls.crl", "ca.crl")] {
        sh.copy_file(tls.join(from), tls.join(to))?;
    }
    let mut configurations = vec![
        (
            "/models",
            sh.read_file(deploy.join("compose/parapet.toml"))?,
        ),
        (
            "/var/lib/parapet/models",
            sh.read_file(deploy.join("systemd/parapet.toml"))?,
        ),
    ];
    for rendered in rendered {
        configurations.push(("/models", configuration_of(rendered)?));
    }
    for (number, (models, text)) in configurations.into_iter().enumerate() {
        let written = format!("path = {models:?}");
        ensure!(
            text.contains(&written),
            "the models are not at {models}:\n{text}"
        );
        let mut text = text.replace(&written, "path = \"models\"");
        for table in ["server", "admin", "instances"] {
            text = text.replace(&format!("/etc/parapet-tls/{table}/"), "tls/");
        }
        let (frontend, file) = (
            debug("parapet-frontend"),
            format!("configuration-{number}.toml"),
        );
        let file = folder.join(file);
        sh.write_file(&file, text)?;
        output(cmd!(sh, "{frontend} --check --config {file}"))?;
    }
    Ok(())
}

fn configuration_of(rendered: &str) -> Result<String> {
    let block = rendered.split_once("  parapet.toml: |\n");
    let (_, block) = block.context("no parapet.toml in the chart")?;
    let is_within = |line: &&str| line.is_empty() || line.starts_with("    ");
    let lines = block.lines().take_while(is_within);
    Ok(lines
        .map(|line| line.trim_start().to_owned() + "\n")
        .collect())
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
        ensure!(
            file.is_file(),
            "{program} is not built: run `cargo build --workspace --bin {program}`"
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_with_their_image() {
        let manifests = "- image: etcd\n  command: [etcd]\n- name: a\n  image: \
            r/parapet-instance:1\n  args: [\"--model\",\"m\"]\n";
        assert_eq!(
            containers(manifests),
            [("r/parapet-instance:1", "[\"--model\",\"m\"]")]
        );
    }
}
