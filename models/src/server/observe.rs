//! Request ids and the request log.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST_ID: usize = 128;

/// Gives each request an id, the client's own if it sent one, which stands in the log and
/// in the answer.
pub(super) async fn request_id(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let given = request
        .headers()
        .get(REQUEST_ID)
        .filter(|id| id.len() <= LONGEST_ID && id.to_str().is_ok());
    let id = given.cloned().unwrap_or_else(fresh_id);
    let span = tracing::info_span!(
        "request",
        request_id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        path = request.uri().path(),
    );
    let answer = async {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        tracing::debug!(status, elapsed = ?start.elapsed(), "answered");
        response
    };
    let mut response = answer.instrument(span).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Unique in this process, and as good as unique among others.
fn fresh_id() -> HeaderValue {
    static PROCESS: LazyLock<u64> = LazyLock::new(rand::random);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = format!(
        "{:016x}-{:x}",
        *PROCESS,
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("-"))
}
