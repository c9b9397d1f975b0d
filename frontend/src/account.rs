//! What every request for inference has in common, whatever protocol it comes by: what names it and says how it was answered,
//! the meters, and the log.

use tokio::time::Instant;

use crate::error::ServeError;
use crate::http::App;
use crate::model::{Provenance, ServedModel};

/// Names a request in logs; taken from the client, or made here, and echoed.
pub(crate) const REQUEST_ID: &str = "x-request-id";
/// How the answer came about, for clients and proxies that don't read the body.
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
pub(crate) struct Account<'a> {
    app: &'a App,
    model: &'a str,
    request_id: &'a str,
    started: Instant,
}

impl<'a> Account<'a> {
    pub(crate) fn begin(app: &'a App, model: &'a str, request_id: &'a str) -> Self {
        app.busy_poll().touch();
        Self { app, model, request_id, started: Instant::now() }
    }

    /// It was answered, or refused.
    pub(crate) fn end<R>(self, model: &ServedModel, result: &Result<(R, Provenance), ServeError>) {
        let Self { app, model: name, request_id, started } = self;
        let (took, meters) = (started.elapsed(), model.driver().meters());
        match result {
            Ok((_, provenance)) => {
                meters.answered(provenance, took);
                tracing::debug!(request_id, model = name, provenance = provenance.kind, ?took, "answered");
            }
            Err(refused) => {
                let (status, kind) = refused.classify();
                meters.failed(kind);
                if status.is_server_error() {
                    tracing::warn!(request_id, model = name, %status, error = %refused, ?took, "failed");
                } else {
                    tracing::debug!(request_id, model = name, %status, error = %refused, ?took, "refused");
                }
            }
        }
        app.busy_poll().touch();
    }

    /// It asked for a model that is not here.
    pub(crate) fn unknown(self, error: &ServeError) {
        let Self { app, model, request_id, .. } = self;
        tracing::debug!(request_id, model, %error, "refused");
        app.busy_poll().touch();
    }
}
