//! Triton's extensions that read: a model's configuration and statistics, the repository's index.
//! Fields have Triton's names; those that have no source here are left out.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::Uri;
use parapet_open_inference::grpc::message::ModelConfig;
use parapet_open_inference::rest::ModelPath;
use serde_json::{Value, json};

use super::{answer, check_may_count};
use crate::app::App;
use crate::error::ServeError;
use crate::model::ServedModel;

pub(super) fn routes() -> Router<Arc<App>> {
    let mut router = Router::new()
        .route("/v2/models", get(models))
        .route("/v2/models/stats", get(all_statistics))
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(control))
        .route("/v2/repository/models/{model}/unload", post(control));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(&format!("{model}/config"), get(configuration))
            .route(&format!("{model}/stats"), get(statistics));
    }
    router
}

async fn models(State(app): State<Arc<App>>) -> Response {
    answer(&json!({ "models": app.serving().models.keys().collect::<Vec<_>>() }))
}

async fn configuration(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ServeError> {
    let model = app.model(&path.model, path.version.as_deref())?;
    Ok(answer(&ModelConfig::new(&model.metadata(), model.max_rows())))
}

async fn statistics(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    uri: Uri,
) -> Result<Response, ServeError> {
    check_may_count(&app, uri).await?;
    let model = app.model(&path.model, path.version.as_deref())?;
    Ok(answer(&json!({ "model_stats": [counted(&model)] })))
}

async fn all_statistics(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, ServeError> {
    check_may_count(&app, uri).await?;
    let serving = app.serving();
    let counted = serving.models.values().map(|model| counted(model));
    Ok(answer(&json!({ "model_stats": counted.collect::<Vec<_>>() })))
}

fn counted(model: &ServedModel) -> Value {
    let stats = model.driver.stats();
    let answered = stats.exact + stats.hedged + stats.backup + stats.reconstructed;
    let failed = stats.failed + stats.rejected;
    json!({
        "name": model.name(),
        "version": model.config.version.to_string(),
        "inference_count": answered,
        "inference_stats": { "success": { "count": answered }, "fail": { "count": failed } },
    })
}

async fn index(State(app): State<Arc<App>>) -> Response {
    let serving = app.serving();
    let entry = |model: &Arc<ServedModel>| {
        let (state, reason) = match model.driver.is_ready() {
            true => ("READY", ""),
            false => ("UNAVAILABLE", "no instance of it is up"),
        };
        let version = model.config.version.to_string();
        json!({ "name": model.name(), "version": version, "state": state, "reason": reason })
    };
    answer(&serving.models.values().map(entry).collect::<Vec<_>>())
}

async fn control() -> ServeError {
    ServeError::Input(
        "the frontend's configuration decides which models are served: change it and reload it"
            .to_owned(),
    )
}
