//! The instance's metrics; the only place that names them.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, describe_gauge, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusRecorder};
use parapet_net::tls::Expiry;

const REQUESTS: &str = "parapet_instance_requests_total";
const IN_FLIGHT: &str = "parapet_instance_requests_in_flight";
const BATCH_ROWS: &str = "parapet_instance_batch_rows";
const QUEUE_SECONDS: &str = "parapet_instance_queue_seconds";
const COMPUTE_SECONDS: &str = "parapet_instance_compute_seconds";
/// As at the frontend, so that one rule watches over all certificates.
const CERTIFICATE_EXPIRY: &str = "parapet_certificate_expiry_timestamp_seconds";
const REVOCATION_LIST_EXPIRY: &str = "parapet_revocation_list_expiry_timestamp_seconds";

const SECONDS: [f64; 16] = [
    1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
];
const ROWS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Outcome of a request for inference; the label `outcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferenceOutcome {
    Ok,
    /// The client's mistake: any status of 400 to 499.
    Rejected,
    /// Turned away for want of room, or while shutting down.
    Overloaded,
    TimedOut,
    Failed,
}

/// The instance's own recorder: several instances in one process, as in tests, don't share one.
pub struct Metrics {
    recorder: PrometheusRecorder,
}

#[derive(Clone)]
pub struct ModelMetrics {
    pub batch: BatchMetrics,
    in_flight: Gauge,
    /// In the order of [`InferenceOutcome`].
    requests: [Counter; 5],
}

#[derive(Clone)]
pub struct BatchMetrics {
    rows: Histogram,
    queue_seconds: Histogram,
    compute_seconds: Histogram,
}

impl Metrics {
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(BATCH_ROWS.to_owned()), &ROWS)?
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
            .build_recorder();
        // The exporter keeps descriptions by name, whatever their kind.
        metrics::with_local_recorder(&recorder, || {
            for (name, description) in [
                (REQUESTS, "Requests for inference, by model and outcome."),
                (IN_FLIGHT, "Requests for inference that wait or run, by model."),
                (BATCH_ROWS, "Rows of the batches that were run."),
                (QUEUE_SECONDS, "Time of requests from arrival to the start of their batch."),
                (COMPUTE_SECONDS, "Time of batches in the engine, injected faults included."),
                (CERTIFICATE_EXPIRY, "When the certificate expires, in seconds since 1970."),
                (REVOCATION_LIST_EXPIRY, "When the next list is due, in seconds since 1970."),
            ] {
                describe_gauge!(name, description);
            }
        });
        Ok(Self { recorder })
    }

    pub fn model(&self, model: &str) -> ModelMetrics {
        let label = ("model", model.to_owned());
        let labels = std::slice::from_ref(&label);
        let requests =
            |outcome: &str| counter!(REQUESTS, &[label.clone(), ("outcome", outcome.to_owned())]);
        metrics::with_local_recorder(&self.recorder, || ModelMetrics {
            batch: BatchMetrics {
                rows: histogram!(BATCH_ROWS, labels),
                queue_seconds: histogram!(QUEUE_SECONDS, labels),
                compute_seconds: histogram!(COMPUTE_SECONDS, labels),
            },
            in_flight: gauge!(IN_FLIGHT, labels),
            requests: ["ok", "rejected", "overloaded", "timed_out", "failed"].map(requests),
        })
    }

    /// Exports when the listeners' certificate expires, and the next revocation list is due.
    pub fn certificate(&self, expiry: Expiry) {
        metrics::with_local_recorder(&self.recorder, || {
            if let Some(expires) = expiry.certificate {
                gauge!(CERTIFICATE_EXPIRY, "role" => "instance").set(expires as f64);
            }
            if let Some(due) = expiry.revocation_lists {
                gauge!(REVOCATION_LIST_EXPIRY, "role" => "instance").set(due as f64);
            }
        });
    }

    pub fn render(&self) -> String {
        self.recorder.handle().render()
    }

    /// Folds what histograms have gathered; without it they grow until the next scrape.
    pub fn run_upkeep(&self) {
        self.recorder.handle().run_upkeep();
    }
}

impl ModelMetrics {
    pub fn request(&self, outcome: InferenceOutcome) {
        self.requests[outcome as usize].increment(1);
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn in_flight(&self) -> InFlight<'_> {
        self.in_flight.increment(1);
        InFlight(&self.in_flight)
    }
}

pub struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

impl BatchMetrics {
    pub fn batch(&self, rows: usize, computed: Duration) {
        self.rows.record(rows as f64);
        self.compute_seconds.record(computed);
    }

    pub fn queued(&self, queued: Duration) {
        self.queue_seconds.record(queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_buckets_are_as_documented() {
        let metrics = Metrics::new().unwrap();
        let model = metrics.model("m");
        model.request(InferenceOutcome::Ok);
        let _in_flight = model.in_flight();
        model.batch.batch(3, Duration::from_millis(2));
        model.batch.queued(Duration::from_micros(50));
        let text = metrics.render();
        for line in [
            r#"parapet_instance_requests_total{model="m",outcome="ok"} 1"#,
            r#"parapet_instance_requests_in_flight{model="m"} 1"#,
            r#"parapet_instance_batch_rows_bucket{model="m",le="4"} 1"#,
            r#"parapet_instance_queue_seconds_bucket{model="m",le="0.0001"} 1"#,
            r#"parapet_instance_compute_seconds_bucket{model="m",le="0.0025"} 1"#,
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }
}
