//! Common part of all inference requests, whatever their protocol: names and outcome, meters,
//! trace and log.

use http::HeaderMap;
use tokio::time::Instant;

use crate::app::App;
use crate::error::ServeError;
use crate::model::{Provenance, ServedModel};
use crate::traces::TracedRequest;

/// Names a request in logs; taken from the client, or made here, and echoed.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// The trace of a request that is traced.
pub(crate) const TRACE_ID: &str = "parapet-trace-id";
/// Provenance of the answer, for clients and proxies that don't read the body.
pub(crate) const PROVENANCE: &str = "parapet-provenance";
pub(crate) const CONFIDENCE: &str = "parapet-confidence";
pub(crate) const CODE: &str = "parapet-code";
/// The request's class, for clients and proxies that don't write the body.
pub(crate) const CLASS_HEADER: &str = "parapet-class";

/// A name for a request that brings none.
pub(crate) fn fresh_request_id() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// A request from its arrival to its answer.
pub(crate) struct RequestContext<'a> {
    app: &'a App,
    request_id: &'a str,
    started: Instant,
    traced: Option<TracedRequest>,
}

impl<'a> RequestContext<'a> {
    /// Begins with the name of the model, if it is served; `headers` say whether the client
    /// traces the request.
    pub(crate) fn begin(
        app: &'a App,
        model: Option<&str>,
        request_id: &'a str,
        headers: &HeaderMap,
    ) -> Self {
        app.busy_poll().touch();
        let traced = app.traces().and_then(|traces| traces.begin(headers, model));
        Self {
            app,
            request_id,
            started: Instant::now(),
            traced,
        }
    }

    pub(crate) fn trace_id(&self) -> Option<String> {
        self.traced.as_ref().map(TracedRequest::id)
    }

    /// Runs what answers the request.
    pub(crate) async fn scope<F: Future>(&self, answering: F) -> F::Output {
        match &self.traced {
            Some(traced) => traced.scope(answering).await,
            None => answering.await,
        }
    }

    /// It was answered, or refused.
    pub(crate) fn end<R>(self, model: &ServedModel, result: &Result<(R, Provenance), ServeError>) {
        let trace_id = self.trace_id();
        let Self {
            app,
            request_id,
            started,
            traced,
        } = self;
        let name = model.name();
        let (took, meters) = (started.elapsed(), model.driver().meters());
        if let Ok((_, provenance)) = result {
            meters.answered(provenance, took);
        }
        let trace_id = trace_id.as_ref().map(tracing::field::display);
        match result {
            Ok((_, provenance)) => {
                let kind = provenance.kind;
                tracing::debug!(
                    request_id,
                    model = name,
                    trace_id,
                    provenance = kind,
                    ?took,
                    "answered"
                );
                if let Some(traced) = traced {
                    traced.answered(kind, provenance.confidence);
                }
            }
            Err(refused) => {
                let (status, kind) = refused.classify();
                meters.failed(kind);
                if status.is_server_error() {
                    tracing::warn!(request_id, model = name, trace_id, %status, error = %refused,
                        ?took, "failed");
                } else {
                    tracing::debug!(request_id, model = name, trace_id, %status, error = %refused,
                        ?took, "refused");
                }
                if let Some(traced) = traced {
                    traced.failed(status, kind);
                }
            }
        }
        app.busy_poll().touch();
    }

    /// It asked for a model that is not here, or its message could not be read.
    pub(crate) fn unknown(self, error: &ServeError) {
        let Self {
            app,
            request_id,
            traced,
            ..
        } = self;
        tracing::debug!(request_id, %error, "refused");
        if let Some(traced) = traced {
            let (status, kind) = error.classify();
            traced.failed(status, kind);
        }
        app.busy_poll().touch();
    }
}
