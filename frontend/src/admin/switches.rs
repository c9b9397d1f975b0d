//! Switches that operators set while a model serves. They hold until they are switched back, the
//! configuration is reloaded, or the process ends.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use parapet_frontend_core::HoldBackOverride;
use parapet_net::server::{Peer, read_body};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::access::Operator;
use super::state;
use crate::app::App;
use crate::error::ServeError;
use crate::http::answer;
use crate::model::ServedModel;

const MOST_BYTES: usize = 1024;
const WITHIN: Duration = Duration::from_secs(5);
/// The longest fixed hold-back; longer is never.
const LONGEST_MS: f64 = 60_000.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Redundancy {
    on: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldBack {
    configured: Option<bool>,
    fixed_ms: Option<f64>,
    percentile: Option<f64>,
}

pub(super) async fn redundancy(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ServeError> {
    let log = Log::of(&request);
    let Redundancy { on } = read(request).await?;
    let model = app.model(&name, None)?;
    let problem = "its strategy has no redundancy; set models.strategy.kind in the configuration";
    ensure!(model.has_redundancy(), input(problem));
    model.driver.set_redundancy(on);
    log.write(&model, "redundancy", &format!("on = {on}"));
    Ok(switched(&model))
}

pub(super) async fn hold_back(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ServeError> {
    let log = Log::of(&request);
    let wanted: HoldBack = read(request).await?;
    let model = app.model(&name, None)?;
    let problem = "its strategy waits for no query to be late; set models.strategy.kind in the \
                   configuration";
    ensure!(model.has_hold_back(), input(problem));
    let hold_back = wanted.parse()?;
    model.driver.set_hold_back(hold_back);
    log.write(&model, "hold_back", &format!("{hold_back:?}"));
    Ok(switched(&model))
}

impl HoldBack {
    fn parse(&self) -> Result<Option<HoldBackOverride>, ServeError> {
        match (self.configured, self.fixed_ms, self.percentile) {
            (Some(true), None, None) => Ok(None),
            (None, Some(millis), None) if (0.0..=LONGEST_MS).contains(&millis) => {
                Ok(Some(HoldBackOverride::Fixed(Duration::from_secs_f64(millis / 1e3))))
            }
            (None, Some(millis), None) => Err(input(&format!(
                "fixed_ms: {millis} is not from 0 to {LONGEST_MS} milliseconds"
            ))),
            (None, None, Some(percentile)) if (0.5..1.0).contains(&percentile) => {
                Ok(Some(HoldBackOverride::Percentile(percentile)))
            }
            (None, None, Some(percentile)) => Err(input(&format!(
                "percentile: {percentile} is no quantile from 0.5 to below 1, as 0.97"
            ))),
            _ => Err(input(
                r#"give one of {"configured": true}, {"fixed_ms": 20}, {"percentile": 0.97}"#,
            )),
        }
    }
}

struct Log {
    operator: Option<Operator>,
    peer: Option<Peer>,
}

impl Log {
    fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        Self { operator: extensions.get().copied(), peer: extensions.get().copied() }
    }

    fn write(&self, model: &ServedModel, switch: &str, to: &str) {
        let by = self.operator.map(tracing::field::display);
        let from = self.peer.map(|peer| tracing::field::display(peer.0));
        tracing::warn!(model = model.name(), switch, to, by, from, "a switch was thrown");
    }
}

/// The body, which must say that it is JSON: a page of another site cannot send that
/// without asking first.
async fn read<T: DeserializeOwned>(request: Request) -> Result<T, ServeError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    let is_json = kind.trim().eq_ignore_ascii_case("application/json");
    ensure!(is_json, input("send the header `Content-Type: application/json`"));
    let body = read_body(request.into_body(), MOST_BYTES, WITHIN).await?;
    serde_json::from_slice(&body).map_err(|error| input(&error.to_string()))
}

fn input(problem: &str) -> ServeError {
    ServeError::Input(problem.to_owned())
}

fn switched(model: &ServedModel) -> Response {
    answer(&state::switches(model, &model.driver.switches()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_back_is_one_thing_within_its_bounds() {
        let parse =
            |text: &str| serde_json::from_str::<HoldBack>(text).map(|wanted| wanted.parse().ok());
        let twenty = HoldBackOverride::Fixed(Duration::from_millis(20));
        let most = HoldBackOverride::Percentile(0.97);
        for (text, parsed) in [
            (r#"{"configured": true}"#, Some(None)),
            (r#"{"fixed_ms": 20}"#, Some(Some(twenty))),
            (r#"{"percentile": 0.97}"#, Some(Some(most))),
            ("{}", None),
            (r#"{"configured": false}"#, None),
            (r#"{"configured": true, "fixed_ms": 1}"#, None),
            (r#"{"fixed_ms": -1}"#, None),
            (r#"{"fixed_ms": 1e300}"#, None),
            (r#"{"percentile": 1}"#, None),
            (r#"{"percentile": 97}"#, None),
            (r#"{"percentile": 0.9, "fixed_ms": 1}"#, None),
        ] {
            assert_eq!(parse(text).unwrap(), parsed, "{text}");
        }
        assert!(parse(r#"{"fixed": 20}"#).is_err());
    }
}
