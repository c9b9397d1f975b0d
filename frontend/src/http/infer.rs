//! `POST /v2/models/{model}/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use parapet_frontend_core::Rejected;
use parapet_open_inference::compression::{Coding, encode as compress};
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Encoded, HEADER_CONTENT_LENGTH, InferRequest, encode_response,
};
use serde::Deserialize;

use super::{body, error, with_type};
use crate::app::App;
use crate::error::ServeError;
use crate::model::{CLASS, Provenance, ServedModel};
use crate::request_context::{
    CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, TRACE_ID, answer, confidence,
    request_id,
};
use crate::tenants::MixingDomain;

/// The part of a path that names a model.
#[derive(Debug, Deserialize)]
pub(super) struct ModelPath {
    pub(super) model: String,
    pub(super) version: Option<String>,
}

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    // The guard has put it there, by the request's key; without it the request shares no group.
    let Some(&domain) = parts.extensions.get::<MixingDomain>() else {
        return error(&ServeError::Unauthenticated);
    };
    let id = request_id(headers);
    let model = app.model(&path.model, path.version.as_deref());
    let known = model.as_ref().ok().cloned();
    // On the heap, since each layer of the server around it would copy it once or twice.
    let answering = Box::pin(async { infer_on(&app, &*model?, domain, headers, body).await });
    let (result, trace_id) = answer(&app, headers, &id, known.as_deref(), answering).await;
    let mut response = result.unwrap_or_else(|refused| error(&refused));
    response.headers_mut().insert(REQUEST_ID, id);
    if let Some(id) = trace_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(TRACE_ID, id);
    }
    response
}

async fn infer_on(
    app: &App,
    model: &ServedModel,
    domain: MixingDomain,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Response, Provenance), ServeError> {
    // Reject before reading the body when there is no room.
    if !model.driver.has_room() {
        return Err(Rejected::Overloaded.into());
    }
    let (mut request, _held) = body::read(app, model, headers, body).await?;
    if let Some(class) = headers.get(CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request
            .parameters
            .entry(CLASS)
            .or_insert_with(|| class.into());
    }
    // Kept while the request itself moves on.
    let all = request.parameters.get_key_value(BINARY_DATA_OUTPUT);
    let forms = InferRequest {
        parameters: all
            .into_iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        outputs: request.outputs.clone(),
        ..InferRequest::default()
    };
    let (response, provenance) = model.infer(domain, request).await?;
    let encoded = encode_response(&response, |output| forms.wants_binary(output));
    let encoded = encoded.map_err(ServeError::Response)?;
    let accepted = Coding::for_response(headers);
    let mut response = respond(encoded, accepted).await;
    let headers = response.headers_mut();
    headers.insert(PROVENANCE, HeaderValue::from_static(provenance.kind));
    if let Some(confidence) = confidence(&provenance) {
        headers.insert(CONFIDENCE, confidence);
    }
    let code = provenance.code.as_deref();
    if let Some(code) = code.and_then(|code| HeaderValue::from_str(code).ok()) {
        headers.insert(CODE, code);
    }
    Ok((response, provenance))
}

/// The answer, compressed if the client likes that best and it is worth it.
async fn respond(encoded: Encoded, accepted: Option<Coding>) -> Response {
    let content_type = encoded.content_type();
    let Encoded {
        mut body,
        header_length,
    } = encoded;
    let mut coded = None;
    if let Some(coding) = accepted
        && let Some(compressed) = compress(coding, &body).await
    {
        body = compressed;
        coded = Some(HeaderValue::from_static(coding.name()));
    }
    let mut response = with_type(StatusCode::OK, content_type, body);
    let headers = response.headers_mut();
    if let Some(length) = header_length {
        // Of the body as it was, like the sizes in it.
        headers.insert(HEADER_CONTENT_LENGTH, length.into());
    }
    if let Some(coding) = coded {
        headers.insert(CONTENT_ENCODING, coding);
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn request_without_a_mixing_domain_is_refused() {
        let app = Arc::new(App::without_models());
        for (domain, status) in [
            (None, StatusCode::UNAUTHORIZED),
            (Some(MixingDomain::SHARED), StatusCode::NOT_FOUND),
        ] {
            let mut request = Request::new(Body::empty());
            if let Some(domain) = domain {
                let _: Option<MixingDomain> = request.extensions_mut().insert(domain);
            }
            let (model, version) = ("model".to_owned(), None);
            let path = Path(ModelPath { model, version });
            let answer = infer(State(Arc::clone(&app)), path, request).await;
            assert_eq!(answer.status(), status);
        }
    }
}
