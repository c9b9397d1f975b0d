//! The admin listener: what operators ask for, apart from the data listener, so that it can be on
//! an address that clients do not reach.
//!
//! | | |
//! |---|---|
//! | `GET /metrics` | Prometheus metrics; no key |
//! | `GET /v2/health/live`, `/v2/health/ready` | as on the data listener; no key |
//! | `GET /debug/groups` | coding groups in memory, at most [`MOST_GROUPS`] of each model |
//! | `POST /admin/reload` | reads the configuration again; the old one stays on a mistake |
//! | `GET /`, `/live`, ... | the live page and what it asks for ([`live`]) |
//!
//! Without keys in the configuration it listens on a loopback address only; [`access`] says who may
//! enter then.

mod access;
mod live;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use parapet_frontend_core::GroupView;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::ServeError;
use crate::http::{error, json as json_response, metrics, server_ready};
use crate::reload::ReloadError;

/// Groups of one model that `/debug/groups` shows.
pub const MOST_GROUPS: usize = 200;

/// The router of the admin listener.
pub fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/debug/groups", get(groups))
        .route("/admin/reload", post(reload))
        .merge(live::guarded())
        .layer(from_fn_with_state(Arc::clone(&app), access::authenticate));
    Router::new()
        .route("/", get(live::page))
        .route("/live", get(live::page))
        .route("/metrics", get(metrics))
        .route("/v2/health/live", get(async || StatusCode::OK))
        .route("/v2/health/ready", get(server_ready))
        .merge(guarded)
        .fallback(async |request: Request| {
            error(&ServeError::UnknownPath {
                path: request.uri().path().into(),
            })
        })
        .with_state(app)
}

async fn groups(State(app): State<Arc<App>>) -> Response {
    let serving = app.serving();
    let models: serde_json::Map<String, Value> = serving
        .models()
        .map(|model| {
            let now = model.driver().snapshot(0, MOST_GROUPS);
            let groups: Vec<Value> = now.groups.iter().map(|view| group(view, now.at)).collect();
            (
                model.name().to_owned(),
                json!({ "in_memory": now.stats.groups_tracked, "groups": groups }),
            )
        })
        .collect();
    json_response(&json!({ "models": models }))
}

/// A group as it stands, or stood, so long after the driver's start.
fn group(view: &GroupView, at: Duration) -> Value {
    let members: Vec<Value> = view
        .members
        .iter()
        .map(|member| {
            json!({
                "status": member.status,
                "predicted": member.predicted,
                "reconstructed": member.reconstructed,
                "late": member.late,
            })
        })
        .collect();
    let ended = view
        .closed
        .map_or(at, |closed| Duration::from_nanos(closed.as_nanos()));
    let age = ended.saturating_sub(Duration::from_nanos(view.opened.as_nanos()));
    json!({
        "id": view.id.to_string(),
        "age_ms": live::millis(age),
        "class": view.id.class().0,
        "k": view.k,
        "sealed": view.sealed,
        "members": members,
        "parity": view.parity,
    })
}

async fn reload(State(app): State<Arc<App>>) -> Response {
    // It goes on if its client does not wait.
    let reloaded = tokio::spawn(async move { app.reload().await }).await;
    let reloaded = reloaded.unwrap_or(Err(ReloadError::NotNow(
        "the reload broke off; the log says where",
    )));
    match reloaded {
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
