//! The configuration file as it is written: every field with its default. Checked in [`super::resolve`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::strategy::settings::Strategy;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) server: ServerSettings,
    pub(super) repository: Repository,
    pub(super) models: Vec<Model>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Repository {
    pub(super) path: PathBuf,
}

/// `[server]`: the HTTP server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address to listen on for gRPC; `None` for no gRPC.
    pub grpc_listen: Option<SocketAddr>,
    /// Requests of one gRPC connection at the same time.
    pub grpc_max_streams: u32,
    /// Connections open at the same time, at each of the listeners.
    pub max_connections: usize,
    /// Time for a request's header to arrive; it runs between requests, too.
    #[serde(rename = "header_read_timeout_ms", deserialize_with = "millis")]
    pub header_read_timeout: Duration,
    /// Time for a request's body to arrive.
    #[serde(rename = "body_read_timeout_ms", deserialize_with = "millis")]
    pub body_read_timeout: Duration,
    /// Time for which a client may take nothing of its response.
    #[serde(rename = "write_timeout_ms", deserialize_with = "millis")]
    pub write_timeout: Duration,
    /// Bytes of a request's header.
    pub max_header_bytes: usize,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// On shutdown, time for requests in flight to finish.
    #[serde(rename = "drain_grace_ms", deserialize_with = "millis")]
    pub drain_grace: Duration,
    /// Time after a request's beginning or end for which sockets are polled without sleeping; 0 for never. Answers come some
    /// tens of microseconds sooner, for a core that is busy while there is load.
    #[serde(rename = "busy_poll_us", deserialize_with = "micros")]
    pub busy_poll: Duration,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            grpc_listen: None,
            grpc_max_streams: 256,
            max_connections: 1024,
            header_read_timeout: Duration::from_secs(30),
            body_read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            max_header_bytes: 16 * 1024,
            max_body_bytes: 16 * 1024 * 1024,
            drain_grace: Duration::from_secs(10),
            busy_poll: Duration::ZERO,
            log_format: LogFormat::Text,
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Vec<String>,
    #[serde(default = "two")]
    pub(super) slots_per_instance: u32,
    #[serde(default = "max_queue")]
    pub(super) max_queue: usize,
    #[serde(default = "max_in_flight")]
    pub(super) max_in_flight: usize,
    #[serde(rename = "timeout_ms", default = "one_second", deserialize_with = "millis")]
    pub(super) timeout: Duration,
    #[serde(rename = "max_timeout_ms", default = "one_minute", deserialize_with = "millis")]
    pub(super) max_timeout: Duration,
    #[serde(default = "three")]
    pub(super) max_attempts: u32,
    #[serde(default = "retry_share")]
    pub(super) retry_share: f64,
    #[serde(default = "max_rows")]
    pub(super) max_rows: usize,
    #[serde(default)]
    pub(super) health: HealthSettings,
    #[serde(default)]
    pub(super) strategy: Strategy,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
}

/// `[models.health]`: how instances are checked.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSettings {
    /// Between two checks of an instance that is up.
    #[serde(rename = "interval_ms", deserialize_with = "millis")]
    pub interval: Duration,
    /// Between two checks of one that is down.
    #[serde(rename = "recovery_interval_ms", deserialize_with = "millis")]
    pub recovery_interval: Duration,
    /// A check that takes longer has failed.
    #[serde(rename = "timeout_ms", deserialize_with = "millis")]
    pub timeout: Duration,
    /// Failed checks in a row after which an instance is down.
    pub failures: u32,
    /// Time to connect.
    #[serde(rename = "connect_timeout_ms", deserialize_with = "millis")]
    pub connect_timeout: Duration,
    /// A request that is given up is held against its instance if it took at least this long.
    #[serde(rename = "suspect_after_ms", deserialize_with = "millis")]
    pub suspect_after: Duration,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(1000),
            recovery_interval: Duration::from_millis(200),
            timeout: Duration::from_millis(1000),
            failures: 2,
            connect_timeout: Duration::from_millis(500),
            suspect_after: Duration::from_millis(500),
        }
    }
}

/// A class of requests with a strategy of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) strategy: Strategy,
}

/// Milliseconds, fractions allowed.
pub(super) fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let millis = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(millis / 1e3)
        .map_err(|_| serde::de::Error::custom("expected milliseconds, a number of at least 0"))
}

fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let micros = f64::deserialize(deserializer)?;
    let duration = Duration::try_from_secs_f64(micros / 1e6).ok();
    duration
        .filter(|duration| *duration <= Duration::from_secs(1))
        .ok_or_else(|| serde::de::Error::custom("expected microseconds, a number from 0 to 1000000"))
}

pub(super) const fn two() -> u32 {
    2
}
const fn three() -> u32 {
    3
}
const fn max_queue() -> usize {
    256
}
const fn max_in_flight() -> usize {
    4096
}
const fn max_rows() -> usize {
    64
}
const fn retry_share() -> f64 {
    0.2
}
pub(super) const fn one_second() -> Duration {
    Duration::from_secs(1)
}
const fn one_minute() -> Duration {
    Duration::from_secs(60)
}
