//! `cargo xtask check dashboards`: a real Prometheus scrapes a real cluster, and every query of the
//! Grafana dashboard and every expression of the rules must give a number there; promtool checks
//! the rules, their tests and the metrics themselves.

use super::write_certificate;
use crate::cluster::{self, MODEL, SampleCluster, bare};
use crate::prelude::*;
use std::collections::BTreeSet;

const RULES: &str = "deploy/prometheus/rules.yml";

pub(crate) fn run() -> Result<()> {
    require(&[("promtool", "prometheus"), ("prometheus", "prometheus")])?;
    let sh = shell()?;
    let tests = "deploy/prometheus/rules-test.yml";
    output(cmd!(sh, "promtool check rules {RULES}"))?;
    output(cmd!(sh, "promtool test rules {tests}"))?;
    build_for_checks()?;
    let folder = scratch("check/dashboards");
    write_certificate(&sh, &folder, "admin")?;
    let mut cluster = SampleCluster::start(&folder, 2, 1, None, &with_all_metrics)?;
    let scraper = start_prometheus(&mut cluster)?;
    load(&mut cluster, Duration::from_secs(6))?;
    let served = served_metrics(&sh, &cluster)?;
    wait_for_scrapes(&scraper, 1 + cluster.instances.len())?;

    let mut all = of_dashboard(&sh.read_file("deploy/grafana/parapet.json")?)?;
    all.extend(of_rules(&http::get_json(&format!("{scraper}/api/v1/rules"))?)?);
    all.extend(of_adapter(&sh.read_file("deploy/prometheus/adapter.yml")?)?);
    let mut empty = Vec::new();
    for (name, expression) in &all {
        let samples = ask(&scraper, expression).with_context(|| name.clone())?;
        if !samples.iter().filter_map(number).any(f64::is_finite) {
            empty.push(format!("{name}: {expression} gives {samples:?}"));
        }
        // A renamed metric is found even where a query hides it.
        for metric in metrics(expression) {
            ensure!(served.contains(metric), "{name}: no server has a metric {metric}");
        }
    }
    let empty = empty.join("\n");
    ensure!(empty.is_empty(), "queries without a number:\n{empty}");
    println!("{} queries, all of them with numbers", all.len());
    Ok(())
}

/// Every request is traced; there is no collector. Operators come within TLS, with a certificate.
fn with_all_metrics(replicas: &[String], parity: &[String]) -> String {
    let coded = cluster::coded(replicas, parity);
    format!(
        "[traces]\nendpoint = \"http://127.0.0.1:9\"\nshare = 1.0\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [admin.tls]\ncertificate = \"admin.crt\"\nkey = \"admin.key\"\n\
         client_ca = \"admin.crt\"\nclient_crl = \"admin.crl\"\n{coded}"
    )
}

/// Starts a Prometheus with our rules, which ends with the cluster; returns its URL.
fn start_prometheus(cluster: &mut SampleCluster) -> Result<String> {
    let instances: Vec<&str> = cluster.instances.iter().map(|url| bare(url)).collect();
    let config = format!(
        "global: {{ scrape_interval: 500ms, evaluation_interval: 1s }}\nrule_files: [{:?}]\n\
         scrape_configs:\n\
         - job_name: parapet-frontend\n  static_configs:\n  \
         - {{ targets: [{:?}], labels: {{ namespace: check, pod: frontend }} }}\n\
         - job_name: parapet-instance\n  static_configs: [{{ targets: {instances:?} }}]\n",
        root().join(RULES),
        bare(&cluster.frontend),
    );
    let url = cluster.cluster.prometheus(&Place::Anywhere, &free_address()?, &config)?;
    let ready = format!("{url}/-/ready");
    wait_for("ready Prometheus", LIMIT, || Ok(http::get(&ready).ok()))?;
    Ok(url)
}

/// Samples that the Prometheus at `url` gives for an expression.
pub(crate) fn ask(url: &str, expression: &str) -> Result<Vec<Value>> {
    let request = http::client().get(format!("{url}/api/v1/query"));
    let answer = request.query("query", expression).call();
    let mut answer = answer.with_context(|| format!("Prometheus at {url}"))?;
    let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
    let samples = answer.pointer("/data/result").and_then(Value::as_array);
    samples.cloned().with_context(|| format!("no result of {expression}: {answer}"))
}

fn number(sample: &Value) -> Option<f64> {
    sample.pointer("/value/1")?.as_str()?.parse().ok()
}

/// Waits until every target was scraped often enough for rates, and the rules were evaluated since.
fn wait_for_scrapes(url: &str, targets: usize) -> Result<()> {
    let all = format!("count(count_over_time(up[1m]) > 4 and up > 0) >= {targets}");
    for expression in [all.as_str(), "parapet:request_duration_seconds:p99_5m > 0"] {
        wait_for(expression, LIMIT, || Ok(ask(url, expression)?.into_iter().next()))?;
    }
    Ok(())
}

/// Sends requests, some of which meet a frozen replica and are reconstructed, and mistaken ones.
fn load(cluster: &mut SampleCluster, length: Duration) -> Result<()> {
    let end = Instant::now() + length;
    let url = format!("{}/v2/models/{MODEL}/infer", cluster.frontend);
    cluster.cluster.start_load(&cluster.frontend)?;
    while Instant::now() < end {
        for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
            cluster.signal(0, signal)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        let _mistaken = http::post(&url, "{}");
    }
    cluster.cluster.end_load(&cluster.frontend).map(drop)
}

/// Names of the metrics of all servers, which promtool takes.
fn served_metrics(sh: &Shell, cluster: &SampleCluster) -> Result<BTreeSet<String>> {
    let mut served = BTreeSet::new();
    for url in [&cluster.frontend].into_iter().chain(&cluster.instances) {
        let metrics = http::get(&format!("{url}/metrics"))?;
        output(cmd!(sh, "promtool check metrics").stdin(&metrics))?;
        let samples = metrics.lines().filter(|line| !line.starts_with('#'));
        served.extend(samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned));
    }
    Ok(served)
}

type Query = (String, String);

fn array<'a>(value: &'a Value, pointer: &str) -> Result<&'a Vec<Value>> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.filter(|found| !found.is_empty()).with_context(|| format!("no {pointer} in {value}"))
}

/// Queries of all panels, with Grafana's variables filled in.
fn of_dashboard(json: &str) -> Result<Vec<Query>> {
    let dashboard: Value = serde_json::from_str(json).context("the dashboard")?;
    let mut queries = Vec::new();
    for panel in array(&dashboard, "/panels")? {
        if panel["type"] == "row" {
            continue;
        }
        let title = panel["title"].as_str().context("a panel without a title")?;
        for target in array(panel, "/targets")? {
            let expression = target["expr"].as_str().context("a target without expr")?;
            let expression = expression.replace("$__rate_interval", "30s").replace("$model", ".*");
            ensure!(!expression.contains('$'), "{title}: an unknown variable in {expression}");
            queries.push((format!("panel {title:?}"), expression));
        }
    }
    Ok(queries)
}

/// Queries of all rules, as Prometheus read them. Of an alert, what stands before the comparison:
/// the whole of it gives nothing while all is well.
fn of_rules(answer: &Value) -> Result<Vec<Query>> {
    let mut queries = Vec::new();
    for group in array(answer, "/data/groups")? {
        for rule in array(group, "/rules")? {
            let text = |field: &str| rule[field].as_str().unwrap_or_default();
            let (name, mut expression) = (format!("rule {}", text("name")), text("query"));
            if text("type") == "alerting" {
                let compared = before_comparison(expression);
                expression = compared.with_context(|| format!("{name}: end in a comparison"))?;
            }
            queries.push((name, expression.to_owned()));
        }
    }
    Ok(queries)
}

/// Queries of the Prometheus adapter, with its templates filled in as it does for a pod.
fn of_adapter(yaml: &str) -> Result<Vec<Query>> {
    let field = |name: &str| -> Result<&str> {
        let mut lines = yaml.lines().map(|line| line.trim_start_matches([' ', '-']));
        let value = lines.find_map(|line| line.strip_prefix(name));
        value.with_context(|| format!("no {name} of the adapter")).map(str::trim)
    };
    let series = field("seriesQuery:")?;
    let name = series.split('{').next().unwrap_or_default();
    let labels = "namespace=\"check\",pod=~\"frontend\"";
    let expression = field("metricsQuery:")?.replace("<<.GroupBy>>", "pod");
    let expression = expression.replace("<<.Series>>", name).replace("<<.LabelMatchers>>", labels);
    Ok([format!("count({series})"), expression].map(|one| ("the adapter".to_owned(), one)).to_vec())
}

fn before_comparison(expression: &str) -> Option<&str> {
    let (before, number) = expression.trim().rsplit_once(['>', '<', '='])?;
    number.trim().parse::<f64>().ok()?;
    Some(before.trim_end_matches(['>', '<', '=', '!', ' ']))
}

fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(move |c: char| !is_part(c));
    words.filter(|word| word.starts_with("parapet_") && !word.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_are_asked_for_what_they_compare() {
        for (alert, compared) in [
            ("a / b > 0.01", Some("a / b")),
            ("min(x{l=\"y\"}) < 1", Some("min(x{l=\"y\"})")),
            ("x != 3", Some("x")),
            ("x > 3 and y", None),
            ("absent(x)", None),
        ] {
            assert_eq!(before_comparison(alert), compared);
        }
    }

    #[test]
    fn metrics_are_found_in_an_expression() {
        let expression =
            "sum by (le) (rate(parapet_a_bucket{model=~\"m\"}[5m])) / parapet:b:rate5m + parapet_c";
        let found: Vec<&str> = metrics(expression).collect();
        assert_eq!(found, ["parapet_a_bucket", "parapet_c"]);
    }
}
