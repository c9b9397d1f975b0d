//! Common part of all inference requests, whatever their protocol: names, meters, trace and log.

use http::{HeaderMap, HeaderName, HeaderValue};
use parapet_net::LogLimit;
use parapet_open_inference::rest::REQUEST_ID;
use tokio::time::Instant;

use crate::app::App;
use crate::error::{ErrorKind, ServeError};
use crate::model::{Provenance, ServedModel};
use crate::traces::TracedRequest;

static TRACE_ID: HeaderName = HeaderName::from_static("parapet-trace-id");
/// Provenance of the answer, for clients and proxies that don't read the body.
static PROVENANCE: HeaderName = HeaderName::from_static("parapet-provenance");
static CONFIDENCE: HeaderName = HeaderName::from_static("parapet-confidence");
static CODE: HeaderName = HeaderName::from_static("parapet-code");
/// The request's class, for clients and proxies that don't write the body.
pub(crate) static CLASS_HEADER: HeaderName = HeaderName::from_static("parapet-class");

static FAILED: [LogLimit; ErrorKind::ALL.len()] = [const { LogLimit::new() }; ErrorKind::ALL.len()];

pub(crate) fn write_provenance(headers: &mut HeaderMap, provenance: &Provenance) {
    headers.insert(&PROVENANCE, HeaderValue::from_static(provenance.kind));
    match provenance.confidence {
        // Of an exact prediction, nearly every one: it need not be worked out.
        Some(1.0) => drop(headers.insert(&CONFIDENCE, HeaderValue::from_static("1.0000"))),
        confidence => write(headers, &CONFIDENCE, confidence.map(|sure| format!("{sure:.4}"))),
    }
    write(headers, &CODE, provenance.code.as_deref());
}

pub(crate) fn write_names(headers: &mut HeaderMap, id: HeaderValue, trace_id: Option<String>) {
    headers.insert(&REQUEST_ID, id);
    write(headers, &TRACE_ID, trace_id);
}

fn write(headers: &mut HeaderMap, name: &HeaderName, value: Option<impl AsRef<str>>) {
    if let Some(value) = value.and_then(|value| HeaderValue::from_str(value.as_ref()).ok()) {
        headers.insert(name, value);
    }
}

/// Answers a request by `answering`: counted by `model`, if it is known, traced and logged. Returns
/// the trace's id with the result.
pub(crate) async fn answer<R>(
    app: &App,
    headers: &HeaderMap,
    request_id: &HeaderValue,
    model: Option<&ServedModel>,
    answering: impl Future<Output = Result<(R, Provenance), ServeError>>,
) -> (Result<R, ServeError>, Option<String>) {
    let started = Instant::now();
    let name = model.map(ServedModel::name);
    let meters = model.map(|model| &model.driver.meters);
    let traces = app.traces.as_ref();
    let traced = traces.and_then(|traces| traces.begin(headers, name));
    let trace_id = traced.as_ref().map(TracedRequest::id);
    let result = match &traced {
        Some(traced) => traced.scope(answering).await,
        None => answering.await,
    };
    let took = started.elapsed();
    let request_id = request_id.to_str().unwrap_or_default();
    let shown_id = trace_id.as_ref().map(tracing::field::display);
    let result = match result {
        Ok((response, provenance)) => {
            if let Some(meters) = meters {
                meters.answered(&provenance, took);
            }
            let kind = provenance.kind;
            tracing::debug!(
                request_id,
                model = name,
                trace_id = shown_id,
                provenance = kind,
                ?took,
                "answered"
            );
            if let Some(traced) = traced {
                traced.answered(kind, provenance.confidence);
            }
            Ok(response)
        }
        Err(refused) => {
            let (status, kind) = refused.classify();
            if let Some(meters) = meters {
                meters.failed(kind);
            }
            let limit = FAILED.get(kind as usize).filter(|_| status.is_server_error());
            if let Some(held_back) = limit.and_then(LogLimit::pass) {
                tracing::warn!(request_id, model = name, trace_id = shown_id, %status,
                    error = %refused, ?took, held_back, "failed");
            } else {
                tracing::debug!(request_id, model = name, trace_id = shown_id, %status,
                    error = %refused, ?took, "refused");
            }
            if let Some(traced) = traced {
                traced.failed(status, kind);
            }
            Err(refused)
        }
    };
    (result, trace_id)
}
