//! From records to figures.
//!
//! [`RunReport`] is what `--json` writes and what other programs read; its [`SCHEMA`] changes when
//! a field's meaning does. Times are milliseconds throughout. How requests count:
//!
//! - `answered`: status 200 with a prediction. `failed`: any other end (an error status, shed
//!   requests among them, or a lost connection). `unanswered`: neither within the timeout, nor
//!   before the run was ended. `unsent`: never sent, because the run was ended first. The four make
//!   `planned`.
//! - `latency.answered` holds answers only. `latency.all` holds every request that was due, and one
//!   without an answer counts as the timeout, or as what it really took where that is longer: a
//!   server that fails fast does not look fast.

mod csv;
mod diff;
mod hgrm;
mod hlog;
mod html;
mod lag;
mod schemas;
mod slo;
mod summarise;
mod summary;
pub(crate) mod table;
mod text;

pub use csv::write_csv;
pub use diff::{AnyReport, Change, Diff, diff, read_report};
pub use hgrm::write_hgrm;
pub use hlog::write_hlog;
pub use html::{compare_page, run_page, sweep_page};
pub use lag::{LagReport, lag_limit_ms};
pub use schemas::schemas;
pub use slo::{Slo, SloFigures, check};
pub(crate) use summarise::{accuracy, by_provenance, charged_us, count, errors};
pub use summarise::{latency_histogram, summarise};
pub use summary::Summary;
pub(crate) use summary::histogram;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::WireEncoding;
use crate::schedule::Arrivals;
use crate::target::Provenance;

/// Name and version of [`RunReport`]'s form.
pub const SCHEMA: &str = "parapet-loadgen/run/1";

/// Figures of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// True if the generator kept its schedule, so that the figures say something about the server.
    pub valid: bool,
    /// True if the run was ended before its schedule was.
    pub partial: bool,
    pub settings: Settings,
    /// Seconds from the start to the last answer.
    pub elapsed_s: f64,
    /// Answers for each second of `elapsed_s`.
    pub answered_per_s: f64,
    pub counts: Counts,
    pub latency: Latency,
    /// Time of answered requests from the actual send; absent without answers.
    pub service: Option<Summary>,
    /// Time from the planned send until a request failed; absent without failures.
    pub time_to_failure: Option<Summary>,
    /// Answers by how they came about; only kinds that occurred.
    pub provenance: BTreeMap<Provenance, Answers>,
    /// Accuracy over all answers; absent where no class is known.
    pub accuracy: Option<Accuracy>,
    /// Failed requests by kind: `http-STATUS`, `grpc-CODE`, `connect`, `connection-lost`,
    /// `invalid-answer`.
    pub errors: BTreeMap<String, usize>,
    pub lag: LagReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    pub target: String,
    pub model: String,
    /// Seed of the schedule and of the order of rows.
    pub seed: u64,
    /// Arrival process; absent where a trace said when.
    pub arrivals: Option<Arrivals>,
    /// The trace that said when, if one did.
    pub trace: Option<TraceSettings>,
    /// Mean requests/s; of a trace, those planned by the time of the last.
    pub rate: f64,
    pub timeout_ms: u64,
    pub encoding: WireEncoding,
    /// Request parameter `allow_approximate`, if sent.
    pub allow_approximate: Option<bool>,
    /// Deadline that requests carried, if they did.
    pub deadline_ms: Option<u64>,
    /// File of the rows that were sent.
    pub images: String,
    /// File of their classes, if given.
    pub labels: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceSettings {
    pub file: String,
    /// SHA-256 of its contents, hexadecimal.
    pub sha256: String,
    pub times: usize,
    /// Speed at which it was sent, as a multiple of the recorded one.
    pub scale: f64,
}

impl Settings {
    pub(crate) fn load(&self) -> String {
        let Self { rate, seed, .. } = self;
        if let Some(trace) = &self.trace {
            let TraceSettings {
                file,
                sha256,
                times,
                scale,
            } = trace;
            let hash = sha256.get(..12).unwrap_or(sha256);
            return format!(
                "trace {file} ({times} times, SHA-256 {hash}) at {scale} times its speed, \
                 {rate:.1} requests/s, seed {seed}"
            );
        }
        let arrivals = self.arrivals.map(|arrivals| arrivals.to_string());
        let arrivals = arrivals.unwrap_or_else(|| "unknown".to_owned());
        format!("{arrivals} arrivals, {rate} requests/s, seed {seed}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// In the schedule.
    pub planned: usize,
    pub sent: usize,
    /// Answered with a prediction.
    pub answered: usize,
    /// Requests that ended without a prediction.
    pub failed: usize,
    /// Sent, but not ended within the timeout or the run.
    pub unanswered: usize,
    /// Requests that were never sent.
    pub unsent: usize,
}

impl Counts {
    /// Share of requests sent that failed or were not answered.
    pub(crate) fn without_answer(&self) -> f64 {
        (self.failed + self.unanswered) as f64 / self.sent.max(1) as f64
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Of answered requests; absent without any.
    pub answered: Option<Summary>,
    /// Of all requests that were due; those without an answer count as the timeout.
    pub all: Option<Summary>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answers {
    pub count: usize,
    /// Share of all answers, `0.0..=1.0`.
    pub share: f64,
    /// Their latency from the planned send.
    pub latency: Summary,
    /// Their accuracy; absent where no class is known.
    pub accuracy: Option<Accuracy>,
    /// Mean of the confidences that the server gave; absent where it gave none.
    pub mean_confidence: Option<f64>,
}

/// Accuracy of the answers' top class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accuracy {
    /// Answers whose class and row's class are known.
    pub judged: usize,
    pub correct: usize,
    /// `correct / judged`.
    pub accuracy: f64,
}
