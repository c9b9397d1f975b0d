//! Admission of calls: the key and the quota; then the message is read, within its bounds.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use parapet_net::server::{Allowance, RequestBody, Reserved};
use parapet_open_inference::grpc::{MODEL_INFER, receive};
use parapet_open_inference::{ProtocolError, Room};
use tonic::body::Body;
use tower::{Service, service_fn};

use super::service::{server, status};
use crate::app::{App, Serving};
use crate::error::ServeError;
use crate::request_context::{answer, request_id, write_names};

/// Calls of health checks, which have no keys.
const HEALTH: [&str; 2] = [
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];
/// Bytes of other calls' messages, which only name a model.
const MAX_NAME_BYTES: usize = 64 * 1024;

pub(crate) fn service(
    app: Arc<App>,
) -> impl Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let server = server(Arc::clone(&app));
    service_fn(move |request| {
        let (app, mut server) = (Arc::clone(&app), server.clone());
        async move {
            // The message's memory is held until its answer is there.
            match admit(&app, request).await {
                Ok((request, _held)) => server.call(request).await,
                Err(refused) => Ok(refused.into_http()),
            }
        }
    })
}

/// The call with its whole message and its [`MixingDomain`], and the memory that it holds.
async fn admit(
    app: &App,
    request: Request<RequestBody>,
) -> Result<(Request<Full<Bytes>>, Held), tonic::Status> {
    let (mut parts, body) = request.into_parts();
    // The call whose message is large, which counts against the quota.
    let infers = parts.uri.path() == MODEL_INFER;
    // As over HTTP, a call without a key or beyond the quota is not traced.
    identify(app, &mut parts, infers).map_err(|refused| status(&refused))?;
    match message(app, &mut parts, body, infers).await {
        Ok((message, held)) => Ok((Request::from_parts(parts, message), held)),
        Err(refused) if infers => Err(refuse(app, &parts.headers, refused).await),
        Err(refused) => Err(status(&refused)),
    }
}

/// Memory of a call's message; the models decide on its contents.
struct Held {
    reserved: Reserved,
    serving: Arc<Serving>,
}

impl Held {
    fn admit(&self, model: &str, bytes: usize) -> Result<(), ServeError> {
        let model_here = self.serving.models.get(model);
        match model_here.map(|model| model.max_contents()) {
            Some(limit) if bytes > limit => Err(ProtocolError::Contents { bytes, limit }.into()),
            None if bytes > 0 => Err(ServeError::UnknownModel {
                model: model.into(),
            }),
            _ => Ok(()),
        }
    }
}

impl Room for Held {
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        let held = self.reserved.hold(bytes);
        held.map_err(|_| ProtocolError::NoMemory)
    }
}

async fn message(
    app: &App,
    parts: &mut Parts,
    body: RequestBody,
    infers: bool,
) -> Result<(Full<Bytes>, Held), ServeError> {
    let serving = app.serving();
    let server = &serving.server;
    let (limit, time) = (server.max_body_bytes, server.body_read_timeout);
    let allowance: Arc<Allowance> = parts.extensions.get().cloned().unwrap_or_default();
    let held = Held {
        reserved: app.body_memory.reserve(Some(allowance)),
        serving,
    };
    let limit = match infers {
        true => limit,
        false => limit.min(MAX_NAME_BYTES),
    };
    receive(parts, body, limit, time, held, Held::admit).await
}

/// As over HTTP: health needs no key, and only predictions count against the quota.
fn identify(app: &App, parts: &mut Parts, infers: bool) -> Result<(), ServeError> {
    if !HEALTH.contains(&parts.uri.path()) {
        let domain = app.serving().tenants.admit(&parts.headers, infers)?;
        parts.extensions.insert(domain);
    }
    Ok(())
}

/// Refuses a call for inference. The message, which names the model, could not be read.
async fn refuse(app: &App, headers: &HeaderMap, error: ServeError) -> tonic::Status {
    let mut refused = status(&error);
    let id = request_id(headers);
    let answering = std::future::ready(Err(error));
    let (_, trace_id) = answer::<()>(app, headers, &id, None, answering).await;
    write_names(refused.metadata_mut().as_mut(), id, trace_id);
    refused
}
