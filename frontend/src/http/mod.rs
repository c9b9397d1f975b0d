//! The Open Inference Protocol's server side: routes, bodies, error objects, request ids.

mod infer;
mod routes;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use parapet_open_inference::compression::UNDERSTOOD;
use parapet_open_inference::{CONTENT_TYPE_JSON, ErrorObject};
use serde::Serialize;

use crate::error::ServeError;

pub(crate) use routes::{metrics, router, server_ready, unknown_path};

fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => with_type(status, CONTENT_TYPE_JSON, body),
        Err(_) => with_type(StatusCode::INTERNAL_SERVER_ERROR, CONTENT_TYPE_JSON, "{}"),
    }
}

/// The protocol's error object with the error's status.
pub(crate) fn error(error: &ServeError) -> Response {
    let (status, _) = error.classify();
    let mut response = json(status, &ErrorObject::of(error));
    let headers = response.headers_mut();
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(UNDERSTOOD));
    }
    if let Some(seconds) = error.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
