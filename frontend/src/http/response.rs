//! Responses in the protocol's forms.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use parapet_open_inference::compression::UNDERSTOOD;
use parapet_open_inference::{CONTENT_TYPE_JSON, ErrorObject};
use serde::Serialize;

use crate::error::ServeError;

pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => with_type(StatusCode::OK, CONTENT_TYPE_JSON, body),
        Err(_) => with_type(StatusCode::INTERNAL_SERVER_ERROR, CONTENT_TYPE_JSON, "{}"),
    }
}

pub(super) fn text(body: String) -> Response {
    with_type(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        body,
    )
}

/// The protocol's error object with the error's status.
pub(crate) fn error(error: &ServeError) -> Response {
    let (status, _) = error.classify();
    let mut response = json(&ErrorObject::of(error));
    *response.status_mut() = status;
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        response
            .headers_mut()
            .insert(ACCEPT_ENCODING, HeaderValue::from_static(UNDERSTOOD));
    }
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
