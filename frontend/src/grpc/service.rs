//! `inference.GRPCInferenceService`.

use std::sync::Arc;

use http::HeaderMap;
use parapet_frontend_core::Rejected;
use parapet_open_inference::grpc::message::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use parapet_open_inference::grpc::{
    Form, Inference, InferenceServer, InferenceService, code_of, timeout_of, write_response,
};
use parapet_open_inference::{InferRequest, error_text};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::error::ServeError;
use crate::model::{CLASS, Provenance, ServedModel};
use crate::request_context::{CLASS_HEADER, answer, request_id, write_names, write_provenance};
use crate::tenants::MixingDomain;

/// The service, behind its [`guard`](super::guard).
pub(super) fn server(app: Arc<App>) -> InferenceServer<impl InferenceService> {
    // Messages come within their bounds, and what they were compressed with is undone: tonic only
    // says what that may be.
    InferenceServer::new(Service { app })
        .max_decoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

struct Service {
    app: Arc<App>,
}

impl Service {
    fn model(&self, name: &str, version: &str) -> Result<Arc<ServedModel>, ServeError> {
        let version = Some(version).filter(|version| !version.is_empty());
        self.app.model(name, version)
    }

    async fn infer_on(
        &self,
        model: &ServedModel,
        domain: MixingDomain,
        headers: &HeaderMap,
        (mut request, form): (InferRequest, Form),
    ) -> Result<(Response<ModelInferResponse>, Provenance), ServeError> {
        take_metadata(&mut request, &MetadataMap::from_headers(headers.clone()));
        if !model.driver.has_room() {
            return Err(Rejected::Overloaded.into());
        }
        let (response, provenance) = model.infer(domain, request).await?;
        let mut response = Response::new(write_response(&response, form));
        write_provenance(response.metadata_mut().as_mut(), &provenance);
        Ok((response, provenance))
    }
}

/// Takes the request's class and the client's deadline from the call's metadata. The message's own
/// timeout counts, but never beyond the call's deadline.
fn take_metadata(request: &mut InferRequest, metadata: &MetadataMap) {
    let class = metadata.get(CLASS_HEADER);
    if let Some(class) = class.and_then(|class| class.to_str().ok()) {
        let own = request.parameters.entry(CLASS);
        own.or_insert_with(|| class.into());
    }
    if let Some(limit) = timeout_of(metadata) {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let timeout = request.parameters.entry("timeout");
        let timeout = timeout.or_insert_with(|| micros.into());
        if timeout.as_u64().is_some_and(|given| given > micros) {
            *timeout = micros.into();
        }
    }
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
        let ready = self.app.is_ready();
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version);
        let ready = model.is_ok_and(|model| model.driver.is_ready()) && !self.app.is_draining();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(App::metadata().into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = self.model(&name, &version);
        let model = model.map_err(|error| status(&error))?;
        Ok(Response::new(model.metadata().into()))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let (metadata, mut extensions, _) = request.into_parts();
        // The guard has put it there, by the request's key; without it the request shares no group.
        let Some(&domain) = extensions.get::<MixingDomain>() else {
            return Err(status(&ServeError::Unauthenticated));
        };
        // The guard has decoded it, of every message that tonic takes for one.
        let Some(Inference {
            model,
            version,
            request,
            form,
        }) = extensions.remove()
        else {
            return Err(Status::internal("the message was not decoded"));
        };
        let headers = metadata.into_headers();
        let id = request_id(&headers);
        let model = self.model(&model, &version);
        let known = model.as_ref().ok().cloned();
        let answering = async {
            self.infer_on(&*model?, domain, &headers, (request, form))
                .await
        };
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

/// The error as [`ServeError::classify`] has it.
pub(super) fn status(error: &ServeError) -> Status {
    let code = match error {
        ServeError::Receive(error) => error.code(),
        error => code_of(error.classify().0),
    };
    let mut status = Status::new(code, error_text(error));
    if let Some(seconds) = error.retry_after() {
        // What gRPC calls Retry-After.
        let pushback = (seconds * 1000).into();
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", pushback);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn call_without_a_mixing_domain_is_refused() {
        let app = Arc::new(App::without_models());
        let call = Request::new(ModelInferRequest::default());
        let refused = Service { app }.model_infer(call).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    }
}
