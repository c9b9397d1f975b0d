//! A Prometheus that scrapes servers.

use crate::prelude::*;

/// Writes its configuration into `folder` and starts it, by its command, at `address`.
pub(crate) fn start(
    processes: &mut Processes,
    prometheus: Cmd<'_>,
    folder: &Path,
    config: &str,
    address: &str,
) -> Result<()> {
    let (sh, file, data) = (
        shell()?,
        folder.join("prometheus.yml"),
        folder.join("prometheus"),
    );
    sh.write_file(&file, config)?;
    sh.remove_path(&data)?;
    let prometheus = prometheus.arg(format!("--config.file={}", file.display()));
    let prometheus = prometheus.arg(format!("--storage.tsdb.path={}", data.display()));
    processes.start(
        "prometheus",
        prometheus.arg(format!("--web.listen-address={address}")),
    )
}

pub(crate) fn query(url: &str, expression: &str) -> Result<Vec<Value>> {
    let mut answer = http::client()
        .get(format!("{url}/api/v1/query"))
        .query("query", expression)
        .call()
        .with_context(|| format!("Prometheus at {url}"))?;
    let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string()?)?;
    let samples = answer.pointer("/data/result").and_then(Value::as_array);
    Ok(samples
        .with_context(|| format!("no result of {expression}: {answer}"))?
        .clone())
}

pub(crate) fn value(sample: &Value) -> Option<f64> {
    sample.pointer("/value/1")?.as_str()?.parse().ok()
}
