//! The configuration file as it is written: every field with its default. Checked in
//! [`super::resolve`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use parapet_net::tls::ClientSettings;
use serde::{Deserialize, Deserializer};

use super::instances::Instances;
use super::pool::default_slots;
use super::strategy::settings::Strategy;
use crate::traces::TraceSettings;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) server: ServerSettings,
    pub(super) admin: Option<Admin>,
    #[serde(default)]
    pub(super) tenants: Vec<Tenant>,
    pub(super) repository: Repository,
    pub(super) traces: Option<TraceSettings>,
    pub(super) models: Vec<Model>,
}

/// `[admin]`: the listener of operators.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    pub(super) listen: SocketAddr,
    #[serde(default)]
    pub(super) key_sha256: Vec<String>,
    pub(super) tls: Option<TlsSettings>,
}

/// `[server.tls]`, `[admin.tls]`: certificate files, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// The chain of certificates, the server's first.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authority that signs clients' certificates; without it they need none.
    pub client_ca: Option<PathBuf>,
    pub client_crl: Option<PathBuf>,
}

/// `[[tenants]]`: who may ask.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) key_sha256: Vec<String>,
    pub(super) requests_per_second: Option<f64>,
    pub(super) burst: Option<f64>,
    #[serde(default)]
    pub(super) may_mix: bool,
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
    /// From one peer, an IPv4 address or an IPv6 network of 64 bits, at both listeners together.
    /// Three quarters of those if not given.
    pub max_connections_per_peer: Option<usize>,
    /// Age at which a connection is closed, after the answers to its requests in flight.
    #[serde(rename = "max_connection_age_ms", deserialize_with = "millis")]
    pub max_connection_age: Duration,
    /// Time for a request's header to arrive; it runs between requests, too.
    #[serde(rename = "header_read_timeout_ms", deserialize_with = "millis")]
    pub header_read_timeout: Duration,
    /// Time for a request's body to arrive.
    #[serde(rename = "body_read_timeout_ms", deserialize_with = "millis")]
    pub body_read_timeout: Duration,
    /// Time for which a client may take nothing of its response.
    #[serde(rename = "write_timeout_ms", deserialize_with = "millis")]
    pub write_timeout: Duration,
    /// Bytes per second at which a client must take its response once it has kept it waiting for
    /// `write_timeout`.
    #[serde(rename = "min_write_bytes_per_s")]
    pub min_write_rate: u32,
    /// Bytes of a request's header.
    pub max_header_bytes: usize,
    /// Fields of a request's header.
    pub max_headers: usize,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Bytes that the bodies of all requests, and what they decode to, may hold at the same time,
    /// the first 64 KB of each connection's aside.
    pub max_bodies_bytes: usize,
    /// TLS of both listeners; plain HTTP and gRPC without it.
    pub tls: Option<TlsSettings>,
    /// True if `/metrics` is here, too; only where there are no tenants if not given.
    pub metrics: Option<bool>,
    /// On shutdown, time for which the server says that it is not ready, and serves on.
    #[serde(rename = "drain_delay_ms", deserialize_with = "millis")]
    pub drain_delay: Duration,
    /// After that, time for requests in flight to finish.
    #[serde(rename = "drain_grace_ms", deserialize_with = "millis")]
    pub drain_grace: Duration,
    /// Time after a request's beginning or end for which sockets are polled without sleeping; 0
    /// for never. Answers come some tens of microseconds sooner, for a core that is busy while
    /// there is load.
    #[serde(rename = "busy_poll_us", deserialize_with = "micros")]
    pub busy_poll: Duration,
    pub log_format: LogFormat,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            grpc_listen: None,
            grpc_max_streams: 256,
            max_connections: 1024,
            max_connections_per_peer: None,
            max_connection_age: Duration::from_secs(3600),
            header_read_timeout: Duration::from_secs(30),
            body_read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            min_write_rate: 16 * 1024,
            max_header_bytes: 16 * 1024,
            max_headers: 100,
            max_body_bytes: 16 * 1024 * 1024,
            max_bodies_bytes: 256 * 1024 * 1024,
            tls: None,
            metrics: None,
            drain_delay: Duration::ZERO,
            drain_grace: Duration::from_secs(10),
            busy_poll: Duration::ZERO,
            log_format: LogFormat::Text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    #[serde(default = "default_slots")]
    pub(super) slots_per_instance: u32,
    #[serde(default = "max_queue")]
    pub(super) max_queue: usize,
    #[serde(default = "queue_wait_share")]
    pub(super) queue_wait_share: f64,
    #[serde(default = "max_in_flight")]
    pub(super) max_in_flight: usize,
    #[serde(
        rename = "timeout_ms",
        default = "one_second",
        deserialize_with = "millis"
    )]
    pub(super) timeout: Duration,
    #[serde(
        rename = "max_timeout_ms",
        default = "one_minute",
        deserialize_with = "millis"
    )]
    pub(super) max_timeout: Duration,
    #[serde(default = "three")]
    pub(super) max_attempts: u32,
    #[serde(default = "retry_share")]
    pub(super) retry_share: f64,
    #[serde(default = "max_rows")]
    pub(super) max_rows: usize,
    /// `[models.tls]`: for `https://` and `grpcs://` instances.
    pub(super) tls: Option<ClientSettings>,
    #[serde(default)]
    pub(super) health: HealthSettings,
    #[serde(default)]
    pub(super) strategy: Strategy,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
}

/// `[models.health]`: how instances are checked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
    /// Failed requests in a row after which an instance that is up is ejected; 0 for never.
    pub eject_after_failures: u32,
    /// For how long; n times as long the n-th time.
    #[serde(rename = "eject_ms", deserialize_with = "millis")]
    pub eject: Duration,
    /// Most of a pool's instances that are ejected at the same time.
    pub max_ejected_share: f64,
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
            eject_after_failures: 5,
            eject: Duration::from_secs(5),
            max_ejected_share: 0.5,
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
fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let millis = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(millis / 1e3)
        .map_err(|_| serde::de::Error::custom("expected milliseconds, a number of at least 0"))
}

fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let micros = f64::deserialize(deserializer)?;
    let duration = Duration::try_from_secs_f64(micros / 1e6).ok();
    duration
        .filter(|duration| *duration <= Duration::from_secs(1))
        .ok_or_else(|| {
            serde::de::Error::custom("expected microseconds, a number from 0 to 1000000")
        })
}

const fn three() -> u32 {
    3
}
const fn max_queue() -> usize {
    256
}
const fn queue_wait_share() -> f64 {
    0.5
}
const fn max_in_flight() -> usize {
    4096
}
/// The default of an instance's `max_batch_size`.
const fn max_rows() -> usize {
    8
}
const fn retry_share() -> f64 {
    0.2
}
const fn one_second() -> Duration {
    Duration::from_secs(1)
}
const fn one_minute() -> Duration {
    Duration::from_secs(60)
}
