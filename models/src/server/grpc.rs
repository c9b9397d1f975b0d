//! `inference.GRPCInferenceService`: what the HTTP routes do, in the other form.

use std::sync::Arc;
use std::time::Duration;

use parapet_open_inference_grpc::message::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest,
    ModelReadyResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use parapet_open_inference_grpc::{
    InferenceServer, InferenceService, Limits, code_of, read_request, timeout_of, write_response,
};
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use super::app::{App, ModelPath, ServedModel};
use super::error::ApiError;
use super::infer::predict;
use super::info;
use crate::metrics::Outcome;

/// Requests of one connection at the same time; the models' queues bound what all of them may have.
const MAX_STREAMS: u32 = 1024;

/// Beyond the time for a request's message and its prediction: whatever takes longer is stuck.
const MARGIN: Duration = Duration::from_secs(1);

/// The service, with the bounds of the configuration.
pub(crate) fn server(app: Arc<App>) -> InferenceServer<impl InferenceService> {
    let max_bytes = app.config.max_body_bytes;
    // tonic undoes compression no further than that.
    InferenceServer::new(Service { app })
        .max_decoding_message_size(max_bytes)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

/// The bounds of the listener; where HTTP/1.1 has the same they are the same.
pub(crate) fn limits(app: &App) -> Limits {
    let config = &app.config;
    Limits {
        max_connections: config.limits.max_connections,
        max_streams: MAX_STREAMS,
        max_header_bytes: u32::try_from(config.limits.max_header_bytes).unwrap_or(u32::MAX),
        idle_timeout: config.limits.header_read_timeout,
        request_timeout: config.body_timeout + config.request_timeout + MARGIN,
    }
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
