//! `POST /v2/models/{model}/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::header::{CONTENT_ENCODING, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use parapet_frontend_core::Rejected;
use parapet_open_inference::compression::{Coding, encode as compress};
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Encoded, HEADER_CONTENT_LENGTH, InferRequest, encode_response,
};

use super::body;
use super::response::{error, with_type};
use crate::app::App;
use crate::error::ServeError;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};
use crate::request_context::{
    CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, RequestContext, TRACE_ID,
    fresh_request_id,
};
use crate::tenants::MixingDomain;

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    answer(&app, &name, None, request).await
}

pub(super) async fn infer_version(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Response {
    answer(&app, &name, Some(&version), request).await
}

async fn answer(app: &App, name: &str, version: Option<&str>, request: Request) -> Response {
    let (
        Parts {
            headers,
            extensions,
            ..
        },
        body,
    ) = request.into_parts();
    let headers = &headers;
    // The guard has put it there, by the request's key; without it the request shares no group.
    let Some(&domain) = extensions.get::<MixingDomain>() else {
        return error(&ServeError::Unauthenticated);
    };
    let request_id = request_id(headers);
    let model = app.model(name, version);
    let known = model.as_ref().ok().map(|model| model.name());
    let request_context =
        RequestContext::begin(app, known, request_id.to_str().unwrap_or_default(), headers);
    let trace_id = request_context.trace_id();
    let mut response = match &model {
        Ok(model) => {
            // On the heap, since each layer of the server around it would copy it once or twice.
            let inferring = Box::pin(infer_on(app, model, domain, headers, body));
            let result = request_context.scope(inferring).await;
            request_context.end(model, &result);
            result.map_or_else(|refused| error(&refused), |(response, _)| response)
        }
        Err(unknown) => {
            request_context.unknown(unknown);
            error(unknown)
        }
    };
    response.headers_mut().insert(REQUEST_ID, request_id);
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
    if !model.driver().has_room() {
        return Err(Rejected::Overloaded.into());
    }
    let (mut request, _held) = body::read(app, model, headers, body).await?;
    if let Some(class) = headers.get(CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request
            .parameters
            .entry(CLASS.to_owned())
            .or_insert_with(|| class.into());
    }
    let binary = BinaryOutputs::of(&request);
    let (response, provenance) = model.infer(domain, request).await?;
    let encoded =
        encode_response(&response, |output| binary.wants(output)).map_err(ServeError::Response)?;
    let accepted = Coding::for_response(headers);
    let mut response = respond(encoded, accepted).await;
    let headers = response.headers_mut();
    headers.insert(PROVENANCE, HeaderValue::from_static(provenance.kind));
    if let Some(confidence) = confidence(&provenance) {
        headers.insert(CONFIDENCE, confidence);
    }
    if let Some(code) = provenance
        .code
        .as_deref()
        .and_then(|code| HeaderValue::from_str(code).ok())
    {
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

/// Outputs that go in binary form; kept while the request itself moves on.
struct BinaryOutputs(InferRequest);

impl BinaryOutputs {
    fn of(request: &InferRequest) -> Self {
        let all = request.parameters.get_key_value(BINARY_DATA_OUTPUT);
        Self(InferRequest {
            parameters: all
                .into_iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            outputs: request.outputs.clone(),
            ..InferRequest::default()
        })
    }

    fn wants(&self, output: &str) -> bool {
        self.0.wants_binary(output)
    }
}

/// With four decimals. That of an exact prediction, nearly every one, need not be worked out.
fn confidence(provenance: &Provenance) -> Option<HeaderValue> {
    let confidence = provenance.confidence?;
    if confidence == 1.0 {
        return Some(HeaderValue::from_static("1.0000"));
    }
    HeaderValue::from_str(&format!("{confidence:.4}")).ok()
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| {
        !id.is_empty()
            && id.len() <= MAX_REQUEST_ID
            && id.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&fresh_request_id())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSettings;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn request_without_a_mixing_domain_is_refused() {
        let metrics = Metrics::new().unwrap();
        let app = Arc::new(App::new(Vec::new(), metrics, ServerSettings::default()));
        let ask = async |domain: Option<MixingDomain>| {
            let mut request = Request::new(Body::empty());
            if let Some(domain) = domain {
                request.extensions_mut().insert(domain);
            }
            infer(State(Arc::clone(&app)), Path("model".to_owned()), request)
                .await
                .status()
        };
        assert_eq!(ask(None).await, StatusCode::UNAUTHORIZED);
        assert_eq!(ask(Some(MixingDomain::SHARED)).await, StatusCode::NOT_FOUND);
    }
}
