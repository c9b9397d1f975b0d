//! A Prometheus that scrapes a cluster.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::processes::{LIMIT, wait_for};
use crate::sample::SampleCluster;
use crate::{http, workspace};

pub(super) const RULES: &str = "deploy/prometheus/rules.yml";

pub(super) struct Prometheus {
    url: String,
}

impl Prometheus {
    /// Starts it with our rules; it ends with the cluster.
    pub(super) fn start(cluster: &mut SampleCluster, folder: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())?
            .port();
        let bare = |url: &String| format!("\"{}\"", url.trim_start_matches("http://"));
        let instances: Vec<String> = cluster.instances.iter().map(bare).collect();
        let config = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 1s }}\nrule_files: \
                [{:?}]\nscrape_configs:\n\
             - job_name: parapet-frontend\n  static_configs: [{{ targets: [{}], labels: {{ namespace: check, pod: frontend }} }}]\n\
             - job_name: parapet-instance\n  static_configs: [{{ targets: [{}] }}]\n",
            workspace::root().join(RULES),
            bare(&cluster.frontend),
            instances.join(", "),
        );
        write(folder, "prometheus.yml", &config)?;
        let data = folder.join("prometheus");
        let _ = std::fs::remove_dir_all(&data);
        let log = std::fs::File::create(folder.join("prometheus.log"))?;
        let process = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                folder.join("prometheus.yml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("prometheus is missing (Debian, Ubuntu: `apt install prometheus`)")?;
        cluster.adopt(process);
        let prometheus = Self {
            url: format!("http://127.0.0.1:{port}"),
        };
        prometheus.until("ready", || {
            Ok(http::get(&format!("{}/-/ready", prometheus.url)).is_ok())
        })?;
        Ok(prometheus)
    }

    /// Waits until every target was scraped often enough for rates, and the rules
    /// were evaluated since.
    pub(super) fn wait_for_scrapes(&self, cluster: &SampleCluster) -> Result<()> {
        let targets = 1 + cluster.instances.len();
        let scraped = "count(count_over_time(up[1m]) > 4 and up > 0)";
        self.until("all targets scraped", || {
            Ok(self
                .query(scraped)?
                .first()
                .is_some_and(|count| *count >= targets as f64))
        })?;
        self.until("rules evaluated", || {
            Ok(!self
                .query("parapet:request_duration_seconds:p99_5m > 0")?
                .is_empty())
        })
    }

    /// The values of an instant query.
    pub(super) fn query(&self, expression: &str) -> Result<Vec<f64>> {
        let query = http::encode(expression);
        let answer = http::get_json(&format!("{}/api/v1/query?query={query}", self.url))?;
        let samples = answer
            .pointer("/data/result")
            .and_then(Value::as_array)
            .context("no result")?;
        let value = |sample: &Value| sample.pointer("/value/1")?.as_str()?.parse().ok();
        Ok(samples.iter().filter_map(value).collect())
    }

    /// The rules as Prometheus read them.
    pub(super) fn rules(&self) -> Result<Value> {
        http::get_json(&format!("{}/api/v1/rules", self.url))
    }

    fn until(&self, what: &str, reached: impl Fn() -> Result<bool>) -> Result<()> {
        wait_for(what, LIMIT, || Ok(reached()?.then_some(())))
            .with_context(|| format!("Prometheus at {}", self.url))
    }
}

/// A file under `folder`, written.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    workspace::write(&path, text)
}
