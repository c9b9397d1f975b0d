//! `cargo xtask check dashboards`: a real Prometheus scrapes a real cluster, and every query of the
//! Grafana dashboard and every expression of the rules must give a number there; promtool checks
//! the rules, their tests and the metrics themselves.

mod prometheus;
mod queries;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::prometheus::{Prometheus, RULES};
use crate::processes::run_with_input;
use crate::sample::{self, Layout, SampleCluster};
use crate::{http, openssl, workspace};

/// Arguments of `cargo xtask check dashboards`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the answers of all queries in this file
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Load the cluster for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 6)]
    load_s: u64,
}

const TESTS: &str = "deploy/prometheus/rules-test.yml";
const DASHBOARD: &str = "deploy/grafana/parapet.json";
const ADAPTER: &str = "deploy/prometheus/adapter.yml";

/// Runs the checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    promtool(&["check", "rules", RULES], None)?;
    promtool(&["test", "rules", TESTS], None)?;
    sample::build()?;
    let folder = sample::folder("dashboards");
    workspace::make_folder(&folder)?;
    openssl::self_signed(&folder, "admin")?;
    openssl::revocation_list(&folder, "admin")?;
    let mut cluster = SampleCluster::start_as(&folder, &Layout::small(&with_all_metrics))?;
    let prometheus = Prometheus::start(&mut cluster, &folder)?;
    load(&cluster, Duration::from_secs(args.load_s))?;
    for url in std::iter::once(&cluster.frontend).chain(&cluster.instances) {
        let metrics = http::get(&format!("{url}/metrics"))?;
        promtool(&["check", "metrics"], Some(&metrics))
            .with_context(|| format!("{url}/metrics"))?;
    }
    prometheus.wait_for_scrapes(&cluster)?;

    let queries = queries::of_dashboard(&root_file(DASHBOARD)?)
        .and_then(|mut all| {
            all.extend(queries::of_rules(&prometheus.rules()?)?);
            all.extend(queries::of_adapter(&root_file(ADAPTER)?)?);
            Ok(all)
        })
        .context("the queries")?;
    let (mut empty, mut answers) = (Vec::new(), String::new());
    for query in &queries {
        let samples = prometheus
            .query(&query.expression)
            .with_context(|| query.name.clone())?;
        answers += &format!(
            "{}\n    {}\n    {samples:?}\n",
            query.name, query.expression
        );
        if !samples.iter().any(|sample| sample.is_finite()) {
            empty.push(format!(
                "{}: {} gives {samples:?}",
                query.name, query.expression
            ));
        }
    }
    if let Some(path) = &args.answers {
        workspace::write(path, answers)?;
    }
    ensure!(
        empty.is_empty(),
        "{} queries give no number:\n{}",
        empty.len(),
        empty.join("\n")
    );
    every_metric_is_there(&cluster, &queries)?;
    println!("{} queries, all of them with numbers", queries.len());
    Ok(())
}

/// Every request is traced; there is no collector. Operators come within TLS, so that there is a
/// certificate.
fn with_all_metrics(replicas: &[String], parity: &[String]) -> String {
    let traces = "[traces]\nendpoint = \"http://127.0.0.1:9\"\nshare = 1.0\n\n";
    let tls = "[admin.tls]\ncertificate = \"admin.crt\"\nkey = \"admin.key\"\nclient_ca = \
        \"admin.crt\"\nclient_crl = \"admin.crl\"\n\n";
    let admin = format!("[admin]\nlisten = \"127.0.0.1:0\"\n{tls}");
    traces.to_owned() + &admin + &sample::coded(replicas, parity)
}

fn root_file(path: &str) -> Result<String> {
    fs::read_to_string(workspace::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Requests one after the other, some of them while the first replica is frozen, some
/// of them mistaken.
fn load(cluster: &SampleCluster, length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    let mut number = 0_u8;
    while Instant::now() < end {
        for _ in 0..10 {
            number = number.wrapping_add(1);
            cluster.infer(f32::from(number))?;
        }
        // Two at a time, so that one meets the frozen replica, and is reconstructed.
        cluster.while_frozen(|| {
            std::thread::scope(|scope| {
                let asked = [0.5_f32, 1.5].map(|value| scope.spawn(move || cluster.infer(value)));
                asked.into_iter().for_each(|asked| drop(asked.join()));
            });
        });
        let _ = http::post(
            &format!("{}/v2/models/{}/infer", cluster.frontend, sample::MODEL),
            "{}",
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Checks that every metric of the dashboard and the rules exists: a renamed one is found even
/// where a query hides it.
fn every_metric_is_there(cluster: &SampleCluster, queries: &[queries::Query]) -> Result<()> {
    let mut served = BTreeSet::new();
    for url in std::iter::once(&cluster.frontend).chain(&cluster.instances) {
        let metrics = http::get(&format!("{url}/metrics"))?;
        let names = metrics.lines().filter(|line| !line.starts_with('#'));
        served.extend(names.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())));
    }
    for query in queries {
        for name in queries::metrics(&query.expression) {
            ensure!(
                served.contains(&name),
                "{}: no server has a metric {name}",
                query.name
            );
        }
    }
    Ok(())
}

/// Runs promtool in the root of the checkout.
fn promtool(args: &[&str], input: Option<&str>) -> Result<()> {
    let mut command = Command::new("promtool");
    command.args(args).current_dir(workspace::root());
    let output = run_with_input(&mut command, input.unwrap_or_default())
        .context("promtool is missing (Debian, Ubuntu: `apt install prometheus`)")?;
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    if !output.status.success() {
        bail!("promtool {}: {said}", args.join(" "));
    }
    Ok(())
}
