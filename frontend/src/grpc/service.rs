//! `inference.GRPCInferenceService`.

use std::sync::Arc;

use http::HeaderMap;
use parapet_frontend_core::Rejected;
use parapet_open_inference::InferRequest;
use parapet_open_inference_grpc::message::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest,
    ModelReadyResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse,
    ServerReadyRequest, ServerReadyResponse,
};
use parapet_open_inference_grpc::{
    InferenceServer, InferenceService, code_of, read_request, timeout_of, write_response,
};
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use crate::account::{
    Account, CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, TRACE_ID, fresh_request_id,
};
use crate::error::ServeError;
use crate::http::App;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};
use crate::tenants::{MixingDomain, Tenant};

/// The service, with the bounds of the configuration.
pub(crate) fn server(app: Arc<App>) -> InferenceServer<impl InferenceService> {
    let max_bytes = app.serving().server().max_body_bytes;
    // tonic undoes compression no further than that.
    InferenceServer::new(Service { app })
        .max_decoding_message_size(max_bytes)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}

struct Service {
    app: Arc<App>,
}

impl Service {
    fn model(&self, name: &str, version: &str) -> Result<Arc<ServedModel>, ServeError> {
        self.app.model(name, Some(version).filter(|version| !version.is_empty()))
    }

    /// Whose key the call has, where there are tenants. As [`crate::http`]'s guard has it: health needs none, and only
    /// predictions count against the quota.
    fn tenant(&self, headers: &HeaderMap, counts: bool) -> Result<Option<Arc<Tenant>>, ServeError> {
        let serving = self.app.serving();
        let tenant = serving.tenants().identify(headers)?;
        if let (Some(tenant), true) = (&tenant, counts) {
            serving.tenants().admit(tenant)?;
        }
        Ok(tenant)
    }

    /// A call that asks what there is.
    fn known<T>(&self, request: Request<T>) -> Result<T, Status> {
        let (metadata, _, message) = request.into_parts();
        self.tenant(&metadata.into_headers(), false).map_err(|error| status(&error))?;
        Ok(message)
    }

    async fn infer_on(
        &self,
        model: &ServedModel,
        domain: MixingDomain,
        headers: &HeaderMap,
        message: ModelInferRequest,
    ) -> Result<(Response<ModelInferResponse>, Provenance), ServeError> {
        let (mut request, form) = read_request(message)?;
        take_metadata(&mut request, &MetadataMap::from_headers(headers.clone()));
        if !model.driver().has_room() {
            return Err(Rejected::Overloaded.into());
        }
        let (response, provenance) = model.infer_within(domain, request).await?;
        let mut response = Response::new(write_response(&response, form));
        let metadata = response.metadata_mut();
        metadata.insert(PROVENANCE, MetadataValue::from_static(provenance.kind));
        if let Ok(confidence) = format!("{:.4}", provenance.confidence).parse() {
            metadata.insert(CONFIDENCE, confidence);
        }
        if let Some(code) = provenance.code.as_deref().and_then(|code| code.parse().ok()) {
            metadata.insert(CODE, code);
        }
        Ok((response, provenance))
    }
}

/// What the call itself says of the request: its class, and how long the client waits. The message's own word counts, but
/// nobody waits longer than the client does.
fn take_metadata(request: &mut InferRequest, metadata: &MetadataMap) {
    if let Some(class) = metadata.get(CLASS_HEADER).and_then(|class| class.to_str().ok()) {
        request.parameters.entry(CLASS.to_owned()).or_insert_with(|| class.into());
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
        Ok(Response::new(ServerReadyResponse { ready: self.app.is_ready() }))
    }

    /// A model that is not here is not ready: that is an answer, not an error.
    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = self.known(request)?;
        let ready = self.model(&name, &version).is_ok_and(|model| model.driver().is_ready());
        Ok(Response::new(ModelReadyResponse { ready: ready && !self.app.is_draining() }))
    }

    async fn server_metadata(
        &self,
        request: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        let _asked = self.known(request)?;
        Ok(Response::new(App::metadata().into()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = self.known(request)?;
        let model = self.model(&name, &version).map_err(|error| status(&error))?;
        Ok(Response::new(model.metadata().into()))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let request_id = request_id(&metadata);
        let (name, version) = (message.model_name.clone(), message.model_version.clone());
        let headers = metadata.into_headers();
        let account = Account::begin(&self.app, &name, &request_id, &headers);
        let trace_id = account.trace_id();
        // Without a key nobody learns which models there are.
        let admitted =
            self.tenant(&headers, true).and_then(|tenant| Ok((tenant, self.model(&name, &version)?)));
        let mut result = match admitted {
            Ok((tenant, model)) => {
                let domain = tenant.map_or(MixingDomain::SHARED, |tenant| tenant.domain());
                let result = account.scope(self.infer_on(&model, domain, &headers, message)).await;
                account.end(&model, &result);
                result.map(|(response, _)| response).map_err(|refused| status(&refused))
            }
            Err(unknown) => {
                account.unknown(&unknown);
                Err(status(&unknown))
            }
        };
        let metadata = match &mut result {
            Ok(response) => response.metadata_mut(),
            Err(status) => status.metadata_mut(),
        };
        for (name, id) in [(REQUEST_ID, Some(request_id)), (TRACE_ID, trace_id)] {
            if let Some(id) = id.and_then(|id| id.parse().ok()) {
                metadata.insert(name, id);
            }
        }
        result
    }
}

fn request_id(metadata: &MetadataMap) -> String {
    let given = metadata.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let usable = |id: &&str| {
        !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    given.filter(usable).map_or_else(fresh_request_id, str::to_owned)
}

/// The error as [`ServeError::classify`] has it.
fn status(error: &ServeError) -> Status {
    let mut status = Status::new(code_of(error.classify().0), error.to_string());
    if let Some(seconds) = error.retry_after() {
        // What gRPC calls Retry-After.
        status.metadata_mut().insert("grpc-retry-pushback-ms", (seconds * 1000).into());
    }
    status
}
