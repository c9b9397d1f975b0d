//! The admin listener: what operators ask for, apart from the data listener, so that it can be on an address that clients do
//! not reach.
//!
//! | | |
//! |---|---|
//! | `GET /metrics` | Prometheus metrics; no key |
//! | `GET /v2/health/live`, `/v2/health/ready` | as on the data listener; no key |
//! | `GET /debug/groups` | coding groups in memory, at most [`MOST_GROUPS`] of each model |
//! | `POST /admin/reload` | reads the configuration again; the old one stays on a mistake |
//!
//! Without keys in the configuration it listens on a loopback address only. Pages of other sites that a browser on the same
//! machine shows must not use that: requests that a browser marks with another origin are refused.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode};
use parapet_frontend_core::GroupView;
use serde_json::{Value, json};

use crate::error::ServeError;
use crate::http::{App, error, json as json_response, metrics, server_ready};
use crate::tenants::{KeyHash, bearer};

/// Groups of one model that `/debug/groups` shows.
pub const MOST_GROUPS: usize = 200;

/// The router of the admin listener.
pub fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/debug/groups", get(groups))
        .route("/admin/reload", post(reload))
        .layer(from_fn_with_state(Arc::clone(&app), authenticate));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v2/health/live", get(async || StatusCode::OK))
        .route("/v2/health/ready", get(server_ready))
        .merge(guarded)
        .fallback(async |request: Request| {
            error(&ServeError::UnknownPath { path: request.uri().path().chars().take(100).collect() })
        })
        .with_state(app)
}

async fn authenticate(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match may_enter(&app, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refused) => error(&refused),
    }
}

fn may_enter(app: &App, headers: &HeaderMap) -> Result<(), ServeError> {
    let serving = app.serving();
    let keys = serving.admin().map(|admin| admin.keys.as_slice()).unwrap_or_default();
    if keys.is_empty() {
        return if is_of_other_site(headers) { Err(ServeError::OtherSite) } else { Ok(()) };
    }
    let given = bearer(headers).map(KeyHash::of);
    let known = keys.iter().fold(false, |known, key| {
        // All are compared.
        known | given.as_ref().is_some_and(|given| given.equals(key))
    });
    if known { Ok(()) } else { Err(ServeError::Unauthenticated) }
}

/// Whether a browser sent it for a page that is not the listener's own.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let authority = origin.to_str().ok().and_then(|origin| origin.split("://").nth(1));
    authority.is_none() || authority != headers.get(HOST).and_then(|host| host.to_str().ok())
}

async fn groups(State(app): State<Arc<App>>) -> Response {
    let serving = app.serving();
    let models: serde_json::Map<String, Value> = serving
        .models()
        .map(|model| {
            let groups: Vec<Value> = model.driver().groups(MOST_GROUPS).iter().map(group).collect();
            (
                model.name().to_owned(),
                json!({ "in_memory": model.driver().stats().groups_tracked, "groups": groups }),
            )
        })
        .collect();
    json_response(&json!({ "models": models }))
}

fn group(view: &GroupView) -> Value {
    let members: Vec<Value> = view
        .members
        .iter()
        .map(|member| json!({ "status": member.status, "predicted": member.predicted, "late": member.late }))
        .collect();
    json!({
        "id": view.id.to_string(),
        "class": view.id.class().0,
        "k": view.k,
        "sealed": view.sealed,
        "members": members,
        "parity": view.parity,
    })
}

async fn reload(State(app): State<Arc<App>>) -> Response {
    match app.reload().await {
        Ok(done) => json_response(&json!({
            "models_kept": done.kept,
            "models_started": done.started,
            "models_stopped": done.stopped,
        })),
        Err(refused) => {
            let mut response = json_response(&json!({ "error": refused.to_string() }));
            *response.status_mut() = StatusCode::CONFLICT;
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        let of = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
            if let Some(origin) = origin {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            is_of_other_site(&headers)
        };
        assert!(!of("localhost:8081", None), "no browser");
        assert!(!of("localhost:8081", Some("http://localhost:8081")));
        for origin in [
            "http://evil.example",
            "http://localhost:8080",
            "null",
            "http://evil.example/http://localhost:8081",
        ] {
            assert!(of("localhost:8081", Some(origin)), "{origin}");
        }
    }
}
