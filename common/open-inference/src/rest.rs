//! Headers and answers of the REST form, the same at every server.

use std::fmt::Display;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::compression::{Coding, UNDERSTOOD, encode};
use crate::{
    CONTENT_TYPE_JSON, Encoded, ErrorObject, Excerpt, HEADER_CONTENT_LENGTH, ProtocolError,
};

/// Header that names a request in logs; taken from the client, or made anew, and echoed.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// [`HEADER_CONTENT_LENGTH`], parsed: names are not parsed anew for each message.
pub static HEADER_LENGTH: HeaderName = HeaderName::from_static(HEADER_CONTENT_LENGTH);
/// Longest request id taken from a client, in bytes.
pub const MAX_REQUEST_ID: usize = 128;

/// Part of a path that names a model.
#[derive(Debug, Deserialize)]
pub struct ModelPath {
    /// Name of the model.
    pub model: String,
    /// Its version; the one that the server chooses if `None`.
    pub version: Option<String>,
}

/// The id that the client gave, if it can be echoed, or a fresh one.
pub fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(&REQUEST_ID).filter(|id| {
        let is_plain = id.as_bytes().iter().all(u8::is_ascii_graphic);
        is_plain && !id.is_empty() && id.len() <= MAX_REQUEST_ID
    });
    given.cloned().unwrap_or_else(|| {
        let fresh = format!("{:016x}", rand::random::<u64>());
        HeaderValue::from_str(&fresh).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

/// Reads [`HEADER_CONTENT_LENGTH`]; `None` where the message has none.
///
/// # Errors
/// [`ProtocolError::HeaderLength`].
pub fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ProtocolError> {
    let Some(value) = headers.get(&HEADER_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().map(str::trim).and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| {
        let value = Excerpt::from(&*String::from_utf8_lossy(value.as_bytes()));
        ProtocolError::HeaderLength { value }
    })
}

/// A response with this body.
pub fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// `value` as JSON.
pub fn respond_json(status: StatusCode, value: &impl Serialize) -> Response<Bytes> {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body.into()),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"{}")),
    };
    respond(status, CONTENT_TYPE_JSON, body)
}

/// The protocol's error object; `retry_after` is in seconds.
pub fn respond_error(
    status: StatusCode,
    error: &dyn Display,
    retry_after: Option<u32>,
) -> Response<Bytes> {
    let mut response = respond_json(status, &ErrorObject::of(error));
    let headers = response.headers_mut();
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(UNDERSTOOD));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Answer to a request with these headers, compressed if its client likes that best and it pays.
pub async fn respond_encoded(encoded: Encoded, request: &HeaderMap) -> Response<Bytes> {
    let content_type = encoded.content_type();
    let Encoded { mut body, header_length } = encoded;
    let mut coded = None;
    if let Some(coding) = Coding::for_response(request)
        && let Some(compressed) = encode(coding, &body).await
    {
        body = compressed;
        coded = Some(HeaderValue::from_static(coding.name()));
    }
    let mut response = respond(StatusCode::OK, content_type, body);
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coded {
        headers.insert(CONTENT_ENCODING, coding);
    }
    if let Some(length) = header_length {
        // Of the body as it was, like the sizes in it.
        headers.insert(&HEADER_LENGTH, length.into());
    }
    response
}
