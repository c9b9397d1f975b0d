//! The Open Inference Protocol over gRPC: what [`crate::http`] does, in the other form.

mod service;

pub(crate) use service::server;

use std::time::Duration;

use parapet_open_inference_grpc::Limits;

use crate::http::App;

/// Beyond the longest deadline that any model gives: whatever takes longer is stuck.
const MARGIN: Duration = Duration::from_secs(1);

/// The bounds of the gRPC listener; where HTTP/1.1 has the same they are the same.
pub(crate) fn limits(app: &App) -> Limits {
    let serving = app.serving();
    let settings = serving.server();
    let longest = serving.models().map(|model| model.max_timeout()).max().unwrap_or_default();
    Limits {
        max_connections: settings.max_connections,
        max_streams: settings.grpc_max_streams,
        max_header_bytes: u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX),
        idle_timeout: settings.header_read_timeout,
        request_timeout: settings.body_read_timeout + longest + MARGIN,
    }
}
