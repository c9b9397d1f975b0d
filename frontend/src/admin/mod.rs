//! The admin listener: what operators ask for, apart from the data listener, so that it can be on
//! an address that clients do not reach.
//!
//! | | |
//! |---|---|
//! | `GET /metrics` | Prometheus metrics; no key |
//! | `GET /v2/health/live`, `/v2/health/ready` | as on the data listener; no key |
//! | `GET /debug/groups` | coding groups in memory, at most [`MOST_GROUPS`] of each model |
//! | `POST /admin/reload` | reads the configuration again; the old one stays on a mistake |
//! | `GET /`, `GET /live` | the live page; no key, since there is nothing in it |
//! | `GET /live/state` | what it shows, as JSON |
//! | `POST /live/models/NAME/redundancy` | `{"on": false}`: queries get no redundancy from now on |
//! | `POST /live/models/NAME/hold_back` | one of `fixed_ms`, `percentile`, `configured: true` |
//!
//! Without configured keys it listens on loopback only; [`access`] says who may enter then.

mod access;
mod page;
mod state;
mod switches;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::http::{answer, answer_with, metrics, server_ready, unknown_path};
use crate::reload::ReloadError;

const MOST_GROUPS: usize = 200;

pub(crate) fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/debug/groups", get(groups))
        .route("/admin/reload", post(reload))
        .route("/live/state", get(state::state))
        .route("/live/models/{model}/redundancy", post(switches::redundancy))
        .route("/live/models/{model}/hold_back", post(switches::hold_back))
        .layer(from_fn_with_state(Arc::clone(&app), access::authenticate));
    Router::new()
        .route("/", get(page::page))
        .route("/live", get(page::page))
        .route("/metrics", get(metrics))
        .route("/v2/health/live", get(async || StatusCode::OK))
        .route("/v2/health/ready", get(server_ready))
        .merge(guarded)
        .fallback(unknown_path)
        .with_state(app)
}

async fn groups(State(app): State<Arc<App>>) -> Response {
    let mut models = Map::new();
    for (name, model) in &app.serving().models {
        let now = model.driver.snapshot(0, MOST_GROUPS);
        let groups: Vec<Value> = now.groups.iter().map(|view| state::group(view, now.at)).collect();
        let shown = json!({ "in_memory": now.stats.groups_tracked, "groups": groups });
        models.insert(name.clone(), shown);
    }
    answer(&json!({ "models": models }))
}

async fn reload(State(app): State<Arc<App>>) -> Response {
    // It goes on if its client does not wait.
    let reloaded = tokio::spawn(async move { app.reload().await }).await;
    let broken = ReloadError::NotNow("the reload broke off; the log says where");
    match reloaded.unwrap_or(Err(broken)) {
        Ok(done) => answer(&json!({
            "models_kept": done.kept,
            "models_started": done.started,
            "models_stopped": done.stopped,
        })),
        Err(refused) => answer_with(StatusCode::CONFLICT, &json!({ "error": refused.to_string() })),
    }
}
