//! Requests to servers on this machine.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use ureq::{Agent, Body, http::Response};

pub(crate) fn client() -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(10)))
        .http_status_as_error(false);
    config.build().into()
}

pub(crate) fn get(url: &str) -> Result<String> {
    body(client().get(url).call().with_context(|| format!("GET {url}"))?, url)
}

pub(crate) fn get_json(url: &str) -> Result<Value> {
    serde_json::from_str(&get(url)?).with_context(|| format!("{url}: no JSON"))
}

pub(crate) fn post(url: &str, json: &str) -> Result<String> {
    let answer = client().post(url).content_type("application/json").send(json);
    body(answer.with_context(|| format!("POST {url}"))?, url)
}

fn body(mut answer: Response<Body>, url: &str) -> Result<String> {
    let text = answer.body_mut().read_to_string().with_context(|| format!("{url}: no body"))?;
    let status = answer.status();
    ensure!(status == 200, "{url}: status {status}: {}", text.trim());
    Ok(text)
}
