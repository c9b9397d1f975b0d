//! `POST /v2/models/{model}/infer`: its key and quota, its body, its answer.
//!
//! A body's bytes, the bytes that it unpacks to and the contents that these decode to count in
//! `max_bodies_bytes`, each before memory is set aside for it.

use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method};
use parapet_frontend_core::Rejected;
use parapet_net::server::{BodyError, Reserved, read_body_within};
use parapet_open_inference::compression::{self, Coding};
use parapet_open_inference::rest::{self, ModelPath};
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, InferRequest, ProtocolError, Room, decode_request_within, encode_response,
};

use crate::app::App;
use crate::error::ServeError;
use crate::model::{CLASS, Provenance, ServedModel};
use crate::request_context::{CLASS_HEADER, answer, write_names, write_provenance};
use crate::tenants::MixingDomain;

pub(super) const HEALTH: [&str; 2] = ["/v2/health/live", "/v2/health/ready"];

pub(super) fn admit(app: &App, request: &Request) -> Result<MixingDomain, ServeError> {
    if HEALTH.contains(&request.uri().path()) {
        return Ok(MixingDomain::SHARED);
    }
    // Metadata costs nothing; predictions are asked for by POST.
    app.serving().tenants.admit(request.headers(), request.method() == Method::POST)
}

/// The model that a request asks for a prediction, where its path has nothing to decode.
pub(super) fn asked_model(request: &Request) -> Option<ModelPath> {
    let path = request.uri().path().strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
    let (model, version) = match path.split_once('/') {
        Some((model, rest)) => (model, Some(rest.strip_prefix("versions/")?)),
        None => (path, None),
    };
    let is_plain = |part: &str| !part.is_empty() && !part.contains(['/', '%']);
    let is_asked =
        request.method() == Method::POST && is_plain(model) && version.is_none_or(is_plain);
    is_asked.then(|| ModelPath { model: model.to_owned(), version: version.map(str::to_owned) })
}

pub(super) async fn infer_routed(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Response {
    // The service has put it there, by the request's key; without it the request shares no group.
    let Some(&domain) = request.extensions().get::<MixingDomain>() else {
        return ServeError::Unauthenticated.into_response();
    };
    // On the heap, since each layer of the router around it would copy it once or twice.
    Box::pin(infer(&app, domain, &path, request)).await
}

pub(super) async fn infer(
    app: &App,
    domain: MixingDomain,
    path: &ModelPath,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let id = rest::request_id(headers);
    let model = app.model(&path.model, path.version.as_deref());
    let known = model.as_ref().ok().cloned();
    // Pinned here: it is large, and would be moved by each that it is handed to.
    let answering = pin!(async { infer_on(app, &*model?, domain, headers, body).await });
    let (result, trace_id) = answer(app, headers, &id, known.as_deref(), answering).await;
    let mut response = result.into_response();
    write_names(response.headers_mut(), id, trace_id);
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
    ensure!(model.driver.has_room(), Rejected::Overloaded.into());
    let (mut request, _held) = read_request(app, model, headers, body).await?;
    if let Some(class) = headers.get(&CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request.parameters.entry(CLASS).or_insert_with(|| class.into());
    }
    // Kept while the request itself moves on.
    let all = request.parameters.get_key_value(BINARY_DATA_OUTPUT);
    let all = all.map(|(name, value)| (name.clone(), value.clone()));
    let forms = InferRequest {
        parameters: all.into_iter().collect(),
        outputs: request.outputs.clone(),
        ..InferRequest::default()
    };
    let (response, provenance) = model.infer(domain, request).await?;
    let encoded = encode_response(&response, |output| forms.wants_binary(output));
    let encoded = encoded.map_err(ServeError::Response)?;
    let mut response = rest::respond_encoded(encoded, headers).await.map(Body::from);
    write_provenance(response.headers_mut(), &provenance);
    Ok((response, provenance))
}

/// Reads a request to `model`, and returns the memory that it holds beside it.
async fn read_request(
    app: &App,
    model: &ServedModel,
    headers: &HeaderMap,
    body: Body,
) -> Result<(InferRequest, Reserved), ServeError> {
    let coding = Coding::of_request(headers)?;
    let header_length = rest::header_length(headers)?;
    let serving = app.serving();
    let server = &serving.server;
    let (max_bytes, limit) = (server.max_body_bytes, server.body_read_timeout);
    let (body, reserved) = read_body_within(body, max_bytes, limit, &app.body_memory).await?;
    let (max_contents, json) = (model.max_contents(), header_length.unwrap_or(body.len()));
    let room = Held { body: 0, contents: 0, reserved };
    let decode = move |body, held, mut room: Held| {
        (room.body, room.contents) = (held, 0);
        let request = decode_request_within(body, header_length, max_contents, &mut room)?;
        room.reserved.decoded();
        if header_length.is_none() {
            // The text is gone; binary tensors are parts of their body.
            room.reserved.shrink_to(room.contents);
        }
        Ok((request, room.reserved))
    };
    let reading = pin!(compression::read(coding, body, json, max_bytes, room, decode));
    // Bodies are read in turn, so that this takes time as receiving does.
    tokio::time::timeout(limit, reading).await.map_err(|_| BodyError::Timeout { limit })?
}

struct Held {
    /// Bytes of the body, and of the body that it unpacks to, once it is decoded.
    body: usize,
    /// Bytes that it decodes to, beside those.
    contents: usize,
    reserved: Reserved,
}

impl Room for Held {
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.contents = bytes;
        self.reserved.hold(self.body.saturating_add(bytes)).map_err(|_| ProtocolError::NoMemory)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::app::tests::without_models;

    #[test]
    fn model_is_asked_by_post_and_a_path_without_escapes() {
        let asked = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            asked_model(&request).map(|path| (path.model, path.version))
        };
        let model = |model: &str, version: Option<&str>| {
            Some((model.to_owned(), version.map(str::to_owned)))
        };
        let post = |path: &str| asked(Method::POST, path);
        assert_eq!(post("/v2/models/m/infer"), model("m", None));
        assert_eq!(post("/v2/models/m/versions/2/infer?a=b"), model("m", Some("2")));
        assert_eq!(post("/v2/models/versions/infer"), model("versions", None));
        for path in ["//infer", "/a%20b/infer", "/a/b/infer", "/m/versions//infer", "/m", "/infer"]
        {
            assert_eq!(post(&format!("/v2/models{path}")), None, "{path}");
        }
        assert_eq!(asked(Method::GET, "/v2/models/m/infer"), None);
    }

    #[tokio::test]
    async fn request_without_a_mixing_domain_is_refused() {
        let app = Arc::new(without_models());
        for (domain, status) in
            [(None, StatusCode::UNAUTHORIZED), (Some(MixingDomain::SHARED), StatusCode::NOT_FOUND)]
        {
            let mut request = Request::new(Body::empty());
            if let Some(domain) = domain {
                let _: Option<MixingDomain> = request.extensions_mut().insert(domain);
            }
            let (model, version) = ("model".to_owned(), None);
            let path = Path(ModelPath { model, version });
            let answer = infer_routed(State(Arc::clone(&app)), path, request).await;
            assert_eq!(answer.status(), status);
        }
    }
}
