//! What every call passes on its way in: the key and the quota; then its message is read, within its bounds.

use std::convert::Infallible;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use parapet_http_serve::{Allowance, RequestBody, Reserved};
use parapet_open_inference_grpc::{Message, receive};
use tonic::body::Body;
use tower::{Service, service_fn};

use super::service::{Names, server, status};
use crate::account::Account;
use crate::error::ServeError;
use crate::http::App;
use crate::tenants::MixingDomain;

/// Calls of health checks, which have no keys.
const HEALTH: [&str; 2] =
    ["/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady"];
/// The call whose message is large, which counts against the quota.
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
/// Bytes of other calls' messages, which only name a model.
const MAX_NAME_BYTES: usize = 64 * 1024;

/// The calls of the protocol.
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

/// The call with its whole message and its [`MixingDomain`], and what is to be kept for as long.
async fn admit(
    app: &App,
    request: Request<RequestBody>,
) -> Result<(Request<Message>, Reserved), tonic::Status> {
    let (mut parts, body) = request.into_parts();
    let infers = parts.uri.path() == INFER;
    let received = match identify(app, &mut parts, infers) {
        Ok(()) => message(app, &mut parts, body, infers).await,
        Err(refused) => Err(refused),
    };
    match received {
        Ok((message, reserved)) => Ok((Request::from_parts(parts, message), reserved)),
        Err(refused) => Err(refuse(app, &parts.headers, infers, &refused)),
    }
}

async fn message(
    app: &App,
    parts: &mut Parts,
    body: RequestBody,
    infers: bool,
) -> Result<(Message, Reserved), ServeError> {
    let serving = app.serving();
    let settings = serving.server();
    let limit = if infers { settings.max_body_bytes } else { settings.max_body_bytes.min(MAX_NAME_BYTES) };
    let allowance: Arc<Allowance> = parts.extensions.get().cloned().unwrap_or_default();
    let mut reserved = app.body_memory().reserve_within(allowance);
    let hold = |bytes| reserved.hold(bytes).is_ok();
    let message = receive(&mut parts.headers, body, limit, settings.body_read_timeout, hold).await?;
    parts.extensions.insert(message.length());
    Ok((message, reserved))
}

/// As [`crate::http`]'s guard has it: health needs no key, and only predictions count against the quota.
fn identify(app: &App, parts: &mut Parts, infers: bool) -> Result<(), ServeError> {
    if HEALTH.contains(&parts.uri.path()) {
        return Ok(());
    }
    let serving = app.serving();
    let Some(tenant) = serving.tenants().identify(&parts.headers)? else {
        return Ok(());
    };
    if infers {
        serving.tenants().admit(&tenant)?;
    }
    let domain: MixingDomain = tenant.domain();
    parts.extensions.insert(domain);
    Ok(())
}

/// Which model it was for stands in the message, which is not here.
fn refuse(app: &App, headers: &HeaderMap, infers: bool, error: &ServeError) -> tonic::Status {
    let mut refused = status(error);
    if infers {
        let mut names = Names::of(headers);
        let account = Account::begin(app, "", &names.request_id, headers);
        names.trace_id = account.trace_id();
        account.unknown(error);
        names.write(refused.metadata_mut());
    }
    refused
}
