//! `inference.GRPCInferenceService`: what [`crate::http`] does, in the other form; and
//! `grpc.health.v1.Health`, for probes. Admission of calls comes first: the key and the quota; then
//! the message is read, within its bounds.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http_body_util::Full;
use parapet_frontend_core::Rejected;
use parapet_net::server::{Allowance, RequestBody, Reserved};
use parapet_open_inference::grpc::message::*;
use parapet_open_inference::grpc::{
    Answer, DESCRIPTORS, Form, Inference, InferenceServer, InferenceService, MODEL_INFER,
    MODEL_STREAM_INFER, answer_stream, code_of, receive, serve, timeout_of, write_response,
};
use parapet_open_inference::{Excerpt, InferRequest, ProtocolError, Room, error_text, rest};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service as _, service_fn};

use crate::app::{App, Serving};
use crate::error::ServeError;
use crate::model::{CLASS, Provenance, ServedModel};
use crate::request_context::{CLASS_HEADER, answer, write_names, write_provenance};
use crate::tenants::MixingDomain;

const SERVICE: &str = "inference.GRPCInferenceService";
const METHODS: [&str; 8] = [
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelConfig",
    "ModelInfer",
    "ModelStreamInfer",
];
/// Of these methods, those that need no key.
const KEYLESS: [&str; 2] = ["ServerLive", "ServerReady"];
const REFLECTION: &str = "/grpc.reflection.v1";
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// Bytes of other calls' messages, which only name a model.
const MAX_NAME_BYTES: usize = 64 * 1024;

pub(crate) fn service(
    app: Arc<App>,
) -> impl tower::Service<
    http::Request<RequestBody>,
    Response = http::Response<Body>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let service = || Service { app: Arc::clone(&app) };
    let (server, health) = (serve(service()), HealthServer::new(service()));
    let reflection = reflection().ok();
    service_fn(move |request: http::Request<RequestBody>| {
        let (app, server, mut health) = (Arc::clone(&app), server.clone(), health.clone());
        let reflection = reflection.clone();
        async move {
            let path = request.uri().path();
            if path == MODEL_STREAM_INFER {
                return Ok(stream(app, server, request));
            }
            if let (Some([v1, v1alpha]), true) = (reflection, path.starts_with(REFLECTION)) {
                let mut reflection = if path.contains(".v1alpha.") { v1alpha } else { v1 };
                return reflect(&app, &mut reflection, request).await;
            }
            // The message's memory is held until its answer is there.
            match admit(&app, request).await {
                Ok((request, _held)) if request.uri().path() == CHECK => health.call(request).await,
                Ok((request, _held)) => Ok(call(server, request).await),
                Err(refused) => Ok(refused.into_http()),
            }
        }
    })
}

type Reflection = BoxCloneSyncService<http::Request<RequestBody>, http::Response<Body>, Infallible>;

/// Server reflection, v1 and v1alpha: the services with their messages, for clients as grpcurl.
fn reflection() -> Result<[Reflection; 2], tonic_reflection::server::Error> {
    let sets = || {
        let builder = Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
        builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (v1, v1alpha) = (sets().build_v1()?, sets().build_v1alpha()?);
    let v1 = Reflection::new(v1.max_decoding_message_size(MAX_NAME_BYTES));
    Ok([v1, Reflection::new(v1alpha.max_decoding_message_size(MAX_NAME_BYTES))])
}

/// Answers a call of reflection, which needs a key as metadata does.
async fn reflect(
    app: &App,
    reflection: &mut Reflection,
    request: http::Request<RequestBody>,
) -> Result<http::Response<Body>, Infallible> {
    let (mut parts, body) = request.into_parts();
    if let Err(refused) = identify(app, &mut parts, false) {
        return Ok(status(&refused).into_http());
    }
    reflection.call(http::Request::from_parts(parts, body)).await
}

type Server = InferenceServer<Service>;

async fn call(mut server: Server, request: http::Request<Full<Bytes>>) -> http::Response<Body> {
    server.call(request).await.unwrap_or_else(|never| match never {})
}

/// Answers a stream: each of its messages is admitted as a call of its own is.
fn stream(
    app: Arc<App>,
    server: Server,
    request: http::Request<RequestBody>,
) -> http::Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Err(refused) = identify(&app, &mut parts, false) {
        return status(&refused).into_http();
    }
    let serving = app.serving();
    let bounds = (serving.server.max_body_bytes, serving.server.body_read_timeout);
    let (memory, allowance) = (Arc::clone(&app), allowance(&parts));
    let room = move || Held {
        reserved: memory.body_memory.reserve(Some(Arc::clone(&allowance))),
        serving: memory.serving(),
    };
    answer_stream(http::Request::from_parts(parts, body), bounds, room, move |request| {
        let (app, server) = (Arc::clone(&app), server.clone());
        async move {
            match admit(&app, request).await {
                Ok((request, _held)) => call(server, request).await,
                Err(refused) => refused.into_http(),
            }
        }
    })
}

fn allowance(parts: &Parts) -> Arc<Allowance> {
    parts.extensions.get().cloned().unwrap_or_default()
}

/// The method of the service that a path names.
fn method(path: &str) -> Option<&str> {
    path.strip_prefix('/')?.strip_prefix(SERVICE)?.strip_prefix('/')
}

/// Refuses a method that is not served. Its message is not awaited, which may never end.
fn check_method(path: &str) -> Result<(), Status> {
    if path == CHECK || method(path).is_some_and(|method| METHODS.contains(&method)) {
        return Ok(());
    }
    let (path, methods) = (Excerpt::from(path), METHODS.join(", "));
    Err(Status::unimplemented(format!(
        "{path:?} is not served; there are {methods} of {SERVICE}, and {CHECK}"
    )))
}

/// The call with its whole message and its [`MixingDomain`], and the memory that it holds.
async fn admit<B>(
    app: &App,
    request: http::Request<B>,
) -> Result<(http::Request<Full<Bytes>>, Held), Status>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let (mut parts, body) = request.into_parts();
    check_method(parts.uri.path())?;
    // The call whose message is large, which counts against the quota.
    let infers = parts.uri.path() == MODEL_INFER;
    // As over HTTP, a call without a key or beyond the quota is not traced.
    identify(app, &mut parts, infers).map_err(|refused| status(&refused))?;
    match message(app, &mut parts, body, infers).await {
        Ok((message, held)) => Ok((http::Request::from_parts(parts, message), held)),
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
        match self.serving.models.get(model).map(|model| model.max_contents()) {
            Some(limit) if bytes > limit => Err(ProtocolError::Contents { bytes, limit }.into()),
            None if bytes > 0 => Err(self.serving.unknown(model)),
            _ => Ok(()),
        }
    }
}

impl Room for Held {
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.reserved.hold(bytes).map_err(|_| ProtocolError::NoMemory)
    }
}

async fn message<B>(
    app: &App,
    parts: &mut Parts,
    body: B,
    infers: bool,
) -> Result<(Full<Bytes>, Held), ServeError>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let serving = app.serving();
    let server = &serving.server;
    let (limit, time) = (server.max_body_bytes, server.body_read_timeout);
    let held = Held { reserved: app.body_memory.reserve(Some(allowance(parts))), serving };
    let limit = if infers { limit } else { limit.min(MAX_NAME_BYTES) };
    receive(parts, body, limit, time, held, Held::admit).await
}

/// As over HTTP: health needs no key, and only predictions count against the quota.
fn identify(app: &App, parts: &mut Parts, infers: bool) -> Result<(), ServeError> {
    let path = parts.uri.path();
    let is_keyless = path == CHECK || method(path).is_some_and(|method| KEYLESS.contains(&method));
    if !is_keyless {
        parts.extensions.insert(app.serving().tenants.admit(&parts.headers, infers)?);
    }
    Ok(())
}

/// Refuses a call for inference. The message, which names the model, could not be read.
async fn refuse(app: &App, headers: &HeaderMap, error: ServeError) -> Status {
    let mut refused = status(&error);
    let id = rest::request_id(headers);
    let answering = std::future::ready(Err(error));
    let (_, trace_id) = answer::<()>(app, headers, &id, None, answering).await;
    write_names(refused.metadata_mut().as_mut(), id, trace_id);
    refused
}

struct Service {
    app: Arc<App>,
}

impl Service {
    fn model(&self, name: &str, version: &str) -> Result<Arc<ServedModel>, ServeError> {
        self.app.model(name, Some(version).filter(|version| !version.is_empty()))
    }

    async fn infer_on(
        &self,
        model: &ServedModel,
        domain: MixingDomain,
        headers: &HeaderMap,
        (mut request, form): (InferRequest, Form),
    ) -> Result<(Response<ModelInferResponse>, Provenance), ServeError> {
        take_metadata(&mut request, &MetadataMap::from_headers(headers.clone()));
        ensure!(model.driver.has_room(), Rejected::Overloaded.into());
        let (response, provenance) = model.infer(domain, request).await?;
        let mut response = Response::new(write_response(&response, form));
        write_provenance(response.metadata_mut().as_mut(), &provenance);
        Ok((response, provenance))
    }
}

/// Takes the request's class and the client's deadline from the call's metadata. The message's own
/// timeout counts, but never beyond the call's deadline.
fn take_metadata(request: &mut InferRequest, metadata: &MetadataMap) {
    let class = metadata.get(CLASS_HEADER.as_str());
    if let Some(class) = class.and_then(|class| class.to_str().ok()) {
        request.parameters.entry(CLASS).or_insert_with(|| class.into());
    }
    if let Some(limit) = timeout_of(metadata) {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let timeout = request.parameters.entry("timeout").or_insert_with(|| micros.into());
        if timeout.as_u64().is_some_and(|given| given > micros) {
            *timeout = micros.into();
        }
    }
}

#[tonic::async_trait]
impl InferenceService for Service {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        Ok(Response::new(ServerReadyResponse { ready: self.app.is_ready() }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version);
        let ready = model.is_ok_and(|model| model.driver.is_ready()) && !self.app.is_draining();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        Ok(Response::new(App::metadata().into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version).map_err(|error| status(&error))?;
        Ok(Response::new(model.metadata().into()))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Answer<ModelConfigResponse> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version).map_err(|error| status(&error))?;
        let config = Some(ModelConfig::new(&model.metadata(), model.max_rows()));
        Ok(Response::new(ModelConfigResponse { config }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let (metadata, mut extensions, _) = request.into_parts();
        // The guard has put it there, by the request's key; without it the request shares no group.
        let Some(&domain) = extensions.get::<MixingDomain>() else {
            return Err(status(&ServeError::Unauthenticated));
        };
        // The guard has decoded it, of every message that tonic takes for one.
        let Some(Inference { model, version, request, form }) = extensions.remove() else {
            return Err(Status::internal("the message was not decoded"));
        };
        let headers = metadata.into_headers();
        let id = rest::request_id(&headers);
        let model = self.model(&model, &version);
        let known = model.as_ref().ok().cloned();
        let answering = async { self.infer_on(&*model?, domain, &headers, (request, form)).await };
        let (result, trace_id) =
            answer(&self.app, &headers, &id, known.as_deref(), answering).await;
        let mut result = result.map_err(|refused| status(&refused));
        let metadata = match &mut result {
            Ok(response) => response.metadata_mut(),
            Err(status) => status.metadata_mut(),
        };
        write_names(metadata.as_mut(), id, trace_id);
        result
    }
}

#[tonic::async_trait]
impl Health for Service {
    /// The frontend's readiness. Models have none here: it needs no key, and which models there are
    /// is for those who have one.
    async fn check(&self, request: Request<HealthCheckRequest>) -> Answer<HealthCheckResponse> {
        let name = request.into_inner().service;
        let text = format!("no such service; leave it out, or name {SERVICE}");
        ensure!(["", SERVICE].contains(&name.as_str()), Status::not_found(text));
        let serving = match self.app.is_ready() {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        Ok(Response::new(HealthCheckResponse { status: serving.into() }))
    }

    type WatchStream = futures::stream::Pending<Result<HealthCheckResponse, Status>>;

    /// Never called: [`check_method`] refuses it.
    async fn watch(&self, _: Request<HealthCheckRequest>) -> Answer<Self::WatchStream> {
        Err(Status::unimplemented("call Check"))
    }
}

fn status(error: &ServeError) -> Status {
    let code = match error {
        ServeError::Receive(error) => error.code(),
        error => code_of(error.classify().0),
    };
    let mut status = Status::new(code, error_text(error));
    if let Some(seconds) = error.retry_after() {
        // What gRPC calls Retry-After.
        let pushback = (seconds * 1000).into();
        status.metadata_mut().insert("grpc-retry-pushback-ms", pushback);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::without_models;

    #[tokio::test]
    async fn call_without_a_mixing_domain_is_refused() {
        let app = Arc::new(without_models());
        let call = Request::new(ModelInferRequest::default());
        let refused = Service { app }.model_infer(call).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    }
}
