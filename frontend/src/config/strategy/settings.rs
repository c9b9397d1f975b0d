//! `[models.strategy]` and `[models.classes.strategy]` as they are written: every field with its
//! default.

use std::time::Duration;

use parapet_encoder::EncoderKind;
use parapet_net::tls::ClientSettings;
use serde::Deserialize;

use crate::config::instances::Instances;
use crate::config::settings::{millis, one_second, two};

#[derive(Debug, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(in crate::config) enum Strategy {
    #[default]
    None,
    EqualResources {
        /// Further instances of the deployed model.
        instances: Vec<String>,
    },
    Replicate(Replicate),
    Hedge(Hedge),
    ApproximateBackup(Box<Backup>),
    Coded(Box<Coded>),
    CodedHedged(Box<Coded>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Replicate {
    #[serde(default = "two")]
    pub(super) copies: u32,
    pub(super) share: Option<f64>,
    pub(super) burst: Option<f64>,
    pub(super) shed_above: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Hedge {
    #[serde(default)]
    pub(super) delay: Delay,
    #[serde(default = "one_copy")]
    pub(super) max_copies: u32,
    #[serde(default = "hedge_share")]
    pub(super) share: f64,
    #[serde(default = "hedge_burst")]
    pub(super) burst: f64,
    pub(super) shed_above: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Backup {
    pub(super) model: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    pub(super) tls: Option<ClientSettings>,
    #[serde(default = "two")]
    pub(super) slots_per_instance: u32,
    #[serde(default = "max_redundant_queue")]
    pub(super) max_queue: usize,
    #[serde(default)]
    pub(super) delay: Delay,
    #[serde(default)]
    pub(super) eager: bool,
    #[serde(
        rename = "late_truth_wait_ms",
        default = "two_seconds",
        deserialize_with = "millis"
    )]
    pub(super) late_truth_wait: Duration,
    pub(super) share: Option<f64>,
    #[serde(default = "redundant_burst")]
    pub(super) burst: f64,
    pub(super) shed_above: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Coded {
    pub(super) encoder: EncoderKind,
    pub(super) k: usize,
    #[serde(default = "one")]
    pub(super) r: usize,
    #[serde(default)]
    pub(super) hold_back: Delay,
    #[serde(default = "yes")]
    pub(super) defer_parity: bool,
    #[serde(
        rename = "flush_after_ms",
        default = "ten_ms",
        deserialize_with = "millis"
    )]
    pub(super) flush_after: Duration,
    #[serde(
        rename = "late_truth_wait_ms",
        default = "two_seconds",
        deserialize_with = "millis"
    )]
    pub(super) late_truth_wait: Duration,
    #[serde(
        rename = "parity_timeout_ms",
        default = "one_second",
        deserialize_with = "millis"
    )]
    pub(super) parity_timeout: Duration,
    #[serde(default = "redundant_share")]
    pub(super) redundant_share: f64,
    #[serde(default = "redundant_burst")]
    pub(super) redundant_burst: f64,
    #[serde(default)]
    pub(super) shed_above: Option<usize>,
    #[serde(default = "audit_every")]
    pub(super) audit_every: u64,
    /// Kinds of query (numbers of samples, for each domain of tenants) that have groups
    /// of their own.
    #[serde(default = "max_keys")]
    pub(super) max_keys: usize,
    #[serde(default = "max_kept_bytes")]
    pub(super) max_kept_bytes: usize,
    /// For `coded_hedged`.
    #[serde(default)]
    pub(super) hedge: Option<Hedging>,
    /// The entry of a learned code.
    pub(super) model: Option<String>,
    pub(super) version: Option<u64>,
    /// For a learned code.
    pub(super) max_coding_queue: Option<usize>,
    /// None for a code without parity models.
    #[serde(default)]
    pub(super) parity: Vec<Parity>,
}

/// The hedge's budget in `coded_hedged`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Hedging {
    pub(super) share: f64,
    pub(super) burst: f64,
}

impl Default for Hedging {
    fn default() -> Self {
        Self {
            share: hedge_share(),
            burst: hedge_burst(),
        }
    }
}

/// When a query counts as late: `fixed_ms`, or a percentile of recent latency within bounds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delay {
    pub(super) fixed_ms: Option<f64>,
    pub(super) percentile: Option<f64>,
    pub(super) min_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) max_over_median: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parity {
    pub(super) model: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    pub(super) tls: Option<ClientSettings>,
    #[serde(default = "two")]
    pub(super) slots_per_instance: u32,
    #[serde(default = "max_redundant_queue")]
    pub(super) max_queue: usize,
}

const fn one() -> usize {
    1
}
const fn one_copy() -> u32 {
    1
}
const fn max_redundant_queue() -> usize {
    16
}
const fn hedge_share() -> f64 {
    0.05
}
const fn hedge_burst() -> f64 {
    10.0
}
const fn redundant_share() -> f64 {
    1.0
}
const fn redundant_burst() -> f64 {
    16.0
}
const fn yes() -> bool {
    true
}
const fn audit_every() -> u64 {
    50
}
const fn ten_ms() -> Duration {
    Duration::from_millis(10)
}
const fn max_keys() -> usize {
    64
}
/// Of inputs of answered queries, 64 MB.
const fn max_kept_bytes() -> usize {
    64 * 1024 * 1024
}
const fn two_seconds() -> Duration {
    Duration::from_secs(2)
}
