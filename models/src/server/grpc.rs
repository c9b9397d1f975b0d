//! `inference.GRPCInferenceService`: what the HTTP routes do, in the other form.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http;
use parapet_http_serve::RequestBody;
use parapet_open_inference_grpc::message::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest,
    ModelReadyResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use parapet_open_inference_grpc::{
    InferenceServer, InferenceService, code_of, read_request, receive, timeout_of, write_response,
};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};
use tower::{Service as _, service_fn};

use super::app::{App, ModelPath, ServedModel};
use super::error::ApiError;
use super::infer::predict;
use super::info;
use crate::metrics::Outcome;

/// Requests of one connection at the same time; the models' queues bound what all of them may have.
pub(crate) const MAX_STREAMS: u32 = 1024;

/// The service, with the bounds of the configuration.
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
    let (max_bytes, time) = (app.config.max_body_bytes, app.config.body_timeout);
    let server = server(app);
    service_fn(move |request: http::Request<RequestBody>| {
        let mut server = server.clone();
        async move {
            let (mut parts, body) = request.into_parts();
            match receive(&mut parts.headers, body, max_bytes, time, |_| true).await {
                Ok(message) => server.call(http::Request::from_parts(parts, message)).await,
                Err(error) => Ok(Status::new(error.code(), error.to_string()).into_http()),
            }
        }
    })
}

fn server(app: Arc<App>) -> InferenceServer<impl InferenceService> {
    // Messages come within their bounds, and what they were compressed with is undone: tonic only says what that may be.
    InferenceServer::new(Service { app })
        .max_decoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

struct Service {
    app: Arc<App>,
}

impl Service {
    async fn answer(
        &self,
        model: &ServedModel,
        request: Request<ModelInferRequest>,
    ) -> Result<ModelInferResponse, ApiError> {
        self.app.check_open()?;
        let most = self.app.config.request_timeout;
        let limit = timeout_of(request.metadata()).map_or(most, |limit| limit.min(most));
        let (mut request, form) = read_request(request.into_inner())?;
        let response = predict(&self.app, model, &mut request, limit).await?;
        Ok(write_response(&response, form))
    }
}

fn path(model: String, version: String) -> ModelPath {
    ModelPath { model, version: Some(version).filter(|version| !version.is_empty()) }
}

/// The error as [`ApiError::status`] has it.
fn status(error: ApiError) -> Status {
    error.log();
    Status::new(code_of(error.status()), error.to_string())
}

#[tonic::async_trait]
impl InferenceService for Service {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: self.app.check_ready().is_ok() }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = self.app.check_model_ready(&path(name, version)).is_ok();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(info::server_metadata().into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let metadata = info::model_metadata(&self.app, &path(name, version)).map_err(status)?;
        Ok(Response::new(metadata.into()))
    }

    async fn model_infer(
        &self,
        mut request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let message = request.get_mut();
        let path = path(std::mem::take(&mut message.model_name), std::mem::take(&mut message.model_version));
        let model = self.app.model(&path).map_err(status)?;
        let result = self.answer(&model, request).await;
        model.metrics.request(result.as_ref().map_or_else(ApiError::outcome, |_| Outcome::Ok));
        result.map(Response::new).map_err(status)
    }
}
