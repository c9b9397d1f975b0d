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
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::error::ServeError;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};
use crate::request_context::{
    CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, RequestContext, TRACE_ID,
    fresh_request_id,
};
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
        self.app
            .model(name, Some(version).filter(|version| !version.is_empty()))
    }

    async fn infer_on(
        &self,
        model: &ServedModel,
        domain: MixingDomain,
        headers: &HeaderMap,
        (mut request, form): (InferRequest, Form),
    ) -> Result<(Response<ModelInferResponse>, Provenance), ServeError> {
        take_metadata(&mut request, &MetadataMap::from_headers(headers.clone()));
        if !model.driver().has_room() {
            return Err(Rejected::Overloaded.into());
        }
        let (response, provenance) = model.infer(domain, request).await?;
        let mut response = Response::new(write_response(&response, form));
        let metadata = response.metadata_mut();
        metadata.insert(PROVENANCE, MetadataValue::from_static(provenance.kind));
        if let Some(Ok(confidence)) = provenance
            .confidence
            .map(|confidence| format!("{confidence:.4}").parse())
        {
            metadata.insert(CONFIDENCE, confidence);
        }
        if let Some(code) = provenance
            .code
            .as_deref()
            .and_then(|code| code.parse().ok())
        {
            metadata.insert(CODE, code);
        }
        Ok((response, provenance))
    }
}

/// Takes the request's class and the client's deadline from the call's metadata. The message's own
/// timeout counts, but never beyond the call's deadline.
fn take_metadata(request: &mut InferRequest, metadata: &MetadataMap) {
    if let Some(class) = metadata
        .get(CLASS_HEADER)
        .and_then(|class| class.to_str().ok())
    {
        request
            .parameters
            .entry(CLASS.to_owned())
            .or_insert_with(|| class.into());
    }
    if let Some(limit) = timeout_of(metadata) {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        let timeout = request
            .parameters
            .entry("timeout")
            .or_insert_with(|| micros.into());
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
        Ok(Response::new(ServerReadyResponse {
            ready: self.app.is_ready(),
        }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = self
            .model(&name, &version)
            .is_ok_and(|model| model.driver().is_ready());
        Ok(Response::new(ModelReadyResponse {
            ready: ready && !self.app.is_draining(),
        }))
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
        let model = self
            .model(&name, &version)
            .map_err(|error| status(&error))?;
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
        let mut names = Names::of(&headers);
        let model = self.model(&model, &version);
        let known = model.as_ref().ok().map(|model| model.name());
        let request_context = RequestContext::begin(&self.app, known, &names.request_id, &headers);
        names.trace_id = request_context.trace_id();
        let mut result = match &model {
            Ok(model) => {
                let result = request_context
                    .scope(self.infer_on(model, domain, &headers, (request, form)))
                    .await;
                request_context.end(model, &result);
                result
                    .map(|(response, _)| response)
                    .map_err(|refused| status(&refused))
            }
            Err(unknown) => {
                request_context.unknown(unknown);
                Err(status(unknown))
            }
        };
        names.write(match &mut result {
            Ok(response) => response.metadata_mut(),
            Err(status) => status.metadata_mut(),
        });
        result
    }
}

/// Names that the answer repeats from its request.
pub(super) struct Names {
    pub(super) request_id: String,
    pub(super) trace_id: Option<String>,
}

impl Names {
    /// As the client calls it, if it does.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let usable = |id: &&str| {
            !id.is_empty()
                && id.len() <= MAX_REQUEST_ID
                && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let request_id = given
            .filter(usable)
            .map_or_else(fresh_request_id, str::to_owned);
        Self {
            request_id,
            trace_id: None,
        }
    }

    pub(super) fn write(self, metadata: &mut MetadataMap) {
        for (name, id) in [
            (REQUEST_ID, Some(self.request_id)),
            (TRACE_ID, self.trace_id),
        ] {
            if let Some(id) = id.and_then(|id| id.parse().ok()) {
                metadata.insert(name, id);
            }
        }
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
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", (seconds * 1000).into());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSettings;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn call_without_a_mixing_domain_is_refused() {
        let app = App::new(
            Vec::new(),
            Metrics::new().unwrap(),
            ServerSettings::default(),
        );
        let service = Service { app: Arc::new(app) };
        let refused = service
            .model_infer(Request::new(ModelInferRequest::default()))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    }
}
