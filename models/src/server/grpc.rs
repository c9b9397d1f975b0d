//! `inference.GRPCInferenceService`: what the HTTP routes do, in the other form.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http;
use bytes::Bytes;
use parapet_net::server::RequestBody;
use parapet_open_inference::grpc::message::*;
use parapet_open_inference::grpc::{
    Answer, Form, Inference, InferenceServer, InferenceService, MODEL_STREAM_INFER, answer_stream,
    code_of, receive, serve, timeout_of, write_response,
};
use parapet_open_inference::rest::ModelPath;
use parapet_open_inference::{InferRequest, Unbounded, error_text};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tower::{BoxError, Service as _, service_fn};

use super::app::{App, ServedModel};
use super::error::{ApiError, outcome};
use super::infer::predict;

/// Requests of one connection at the same time; the models' queues bound what all of them may have.
pub(crate) const MAX_STREAMS: u32 = 1024;

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
    let bounds = (app.config.max_body_bytes, app.config.body_timeout);
    let server = serve(Service { app });
    service_fn(move |request: http::Request<RequestBody>| {
        let server = server.clone();
        async move {
            if request.uri().path() == MODEL_STREAM_INFER {
                let call = move |request| call(server.clone(), bounds, request);
                return Ok(answer_stream(request, bounds, || Unbounded, call));
            }
            Ok(call(server, bounds, request).await)
        }
    })
}

async fn call<B>(
    mut server: InferenceServer<Service>,
    (max_bytes, time): (usize, Duration),
    request: http::Request<B>,
) -> http::Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    let (mut parts, body) = request.into_parts();
    let admit = |_: &_, _: &str, _| Ok::<_, ApiError>(());
    match receive(&mut parts, body, max_bytes, time, Unbounded, admit).await {
        Ok((message, _)) => {
            let answer = server.call(http::Request::from_parts(parts, message)).await;
            answer.unwrap_or_else(|never| match never {})
        }
        Err(error) => status(error).into_http(),
    }
}

struct Service {
    app: Arc<App>,
}

impl Service {
    async fn answer(
        &self,
        model: &ServedModel,
        timeout: Option<Duration>,
        (mut request, form): (InferRequest, Form),
    ) -> Result<ModelInferResponse, ApiError> {
        self.app.check_open()?;
        let most = self.app.config.request_timeout;
        let limit = timeout.map_or(most, |limit| limit.min(most));
        let response = predict(&self.app, model, &mut request, limit).await?;
        Ok(write_response(&response, form))
    }
}

fn path(model: String, version: String) -> ModelPath {
    ModelPath { model, version: Some(version).filter(|version| !version.is_empty()) }
}

fn status(error: ApiError) -> Status {
    error.log();
    let code = match &error {
        ApiError::Receive(error) => error.code(),
        error => code_of(error.status()),
    };
    Status::new(code, error_text(&error))
}

#[tonic::async_trait]
impl InferenceService for Service {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        Ok(Response::new(ServerReadyResponse { ready: self.app.check_ready().is_ok() }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = self.app.check_model_ready(&path(name, version)).is_ok();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        Ok(Response::new(super::server_metadata().into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let metadata = super::model_metadata(&self.app, &path(name, version)).map_err(status)?;
        Ok(Response::new(metadata.into()))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Answer<ModelConfigResponse> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let config = super::model_config(&self.app, &path(name, version)).map_err(status)?;
        Ok(Response::new(ModelConfigResponse { config: Some(config) }))
    }

    async fn model_infer(
        &self,
        mut request: Request<ModelInferRequest>,
    ) -> Answer<ModelInferResponse> {
        // Decoded when it was received, of every message that tonic takes for one.
        let Some(inference) = request.extensions_mut().remove::<Inference>() else {
            return Err(status(ApiError::Internal("the message was not decoded")));
        };
        let model = self.app.model(&path(inference.model, inference.version)).map_err(status)?;
        let timeout = timeout_of(request.metadata());
        let result = self.answer(&model, timeout, (inference.request, inference.form)).await;
        model.metrics.request(outcome(&result));
        result.map(Response::new).map_err(status)
    }
}
