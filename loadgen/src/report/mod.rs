//! From records to figures.
//!
//! [`RunReport`] is what `--json` writes and what other programs read; its [`SCHEMA`] changes when
//! a field's meaning does. Times are milliseconds throughout. How requests count:
//!
//! - `answered`: status 200 with a prediction. `failed`: any other end (an error status, shed
//!   requests among them, or a lost connection). `unanswered`: neither within the timeout, nor
//!   before the run was ended. `unsent`: not sent before then. The four make `planned`.
//! - `latency.answered` holds answers only. `latency.all` holds every request that was due, and one
//!   without an answer counts as the timeout, or as what it really took where that is longer: a
//!   server that fails fast does not look fast.

mod compare_page;
mod figures;
pub(crate) mod page;
mod plot;
mod run_page;
mod slo;

pub use compare_page::compare_page;
pub use figures::{LagReport, Summary, lag_limit_ms, summarise};
pub(crate) use figures::{Tally, charged_us};
pub use run_page::run_page;
pub use slo::{Slo, check};

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::compare::CompareReport;
use crate::payload::WireEncoding;
use crate::schedule::Arrivals;
use crate::simulate::SimulationReport;
use crate::target::Provenance;

pub const SCHEMA: &str = "parapet-loadgen/run/1";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// True if the generator kept its schedule, so that the figures say something about the server.
    pub valid: bool,
    /// True if the run was ended before its schedule was.
    pub partial: bool,
    pub settings: Settings,
    pub elapsed_s: f64,
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
    pub seed: u64,
    /// Arrival process; absent where a trace said when.
    pub arrivals: Option<Arrivals>,
    pub trace: Option<TraceSettings>,
    /// Mean requests/s; of a trace, those planned by the time of the last.
    pub rate: f64,
    pub timeout_ms: u64,
    pub encoding: WireEncoding,
    pub allow_approximate: Option<bool>,
    pub deadline_ms: Option<u64>,
    pub images: String,
    pub labels: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceSettings {
    pub file: String,
    pub sha256: String,
    pub times: usize,
    /// Speed at which it was sent, as a multiple of the recorded one.
    pub scale: f64,
}

/// JSON Schemas (draft 2020-12) of all reports, by the kind of report.
pub fn schemas() -> [(&'static str, Schema); 3] {
    [
        ("run", schema_for!(RunReport)),
        ("compare", schema_for!(CompareReport)),
        ("simulation", schema_for!(SimulationReport)),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    pub planned: usize,
    pub sent: usize,
    pub answered: usize,
    /// Requests that ended without a prediction.
    pub failed: usize,
    /// Sent, but not ended within the timeout or the run.
    pub unanswered: usize,
    pub unsent: usize,
}

impl Counts {
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
    pub share: f64,
    pub latency: Summary,
    pub accuracy: Option<Accuracy>,
    /// Mean of the confidences that the server gave; absent where it gave none.
    pub mean_confidence: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accuracy {
    /// Answers whose class and row's class are known.
    pub judged: usize,
    pub correct: usize,
    pub accuracy: f64,
}
