//! Settings of traces.

use serde::Deserialize;

/// `[traces]`: OpenTelemetry traces, sent by OTLP over gRPC.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSettings {
    /// The collector: `http://HOST:PORT`, usually port 4317.
    pub endpoint: String,
    /// The share of requests that are traced, 0 to 1, of those whose clients do not say by
    /// `traceparent`.
    #[serde(default = "one_percent")]
    pub share: f64,
    /// Name of this frontend at the collector.
    #[serde(default = "service_name")]
    pub service_name: String,
}

const fn one_percent() -> f64 {
    0.01
}
fn service_name() -> String {
    "parapet-frontend".to_owned()
}
