//! Layers of every request: on its way in the key and the quota; on its way out, while the server
//! drains, the wish that its client goes elsewhere.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Version};

use super::response::error;
use crate::app::App;
use crate::error::ServeError;
use crate::tenants::MixingDomain;

/// Paths that health checks ask, which have no keys.
const HEALTH: [&str; 2] = ["/v2/health/live", "/v2/health/ready"];

pub(super) async fn guard(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let version = request.version();
    let mut response = match admit(&app, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refused) => error(&refused),
    };
    // Kept connections would be closed soon, perhaps just when their clients send; told so, clients
    // open one elsewhere.
    if app.is_draining() && version <= Version::HTTP_11 {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Puts the request's [`MixingDomain`] into its extensions.
fn admit(app: &App, request: &mut Request) -> Result<(), ServeError> {
    if HEALTH.contains(&request.uri().path()) {
        return Ok(());
    }
    let serving = app.serving();
    let tenant = serving.tenants().identify(request.headers())?;
    // Metadata costs nothing; predictions are asked for by POST, by whatever protocol.
    if let Some(tenant) = &tenant
        && request.method() == Method::POST
    {
        serving.tenants().admit(tenant)?;
    }
    let domain = tenant.map_or(MixingDomain::SHARED, |tenant| tenant.domain());
    request.extensions_mut().insert(domain);
    Ok(())
}
