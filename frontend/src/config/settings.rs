//! The configuration file as it is written, with its defaults; checked in [`super::resolve`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use parapet_config::log::LogFormat;
use parapet_config::{address, toml_file};
use parapet_encoder::{Decoding, EncoderKind};
use parapet_frontend_core::{StrategyConfig, millis};
use parapet_net::tls::{ClientSettings, ServerFiles};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use super::pool::Instances;
use crate::traces::TraceSettings;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) server: ServerSettings,
    pub(super) admin: Option<Admin>,
    #[serde(default)]
    pub(super) tenants: Vec<Tenant>,
    pub(super) repository: Option<Repository>,
    pub(super) traces: Option<TraceSettings>,
    pub(super) models: Vec<ModelSettings>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admin {
    #[serde(deserialize_with = "address::deserialize")]
    pub(super) listen: SocketAddr,
    #[serde(default)]
    pub(super) key_sha256: Vec<String>,
    pub(super) tls: Option<ServerFiles>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) key_sha256: Vec<String>,
    pub(super) requests_per_second: Option<f64>,
    pub(super) burst: Option<f64>,
    #[serde(default)]
    pub(super) may_mix: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Repository {
    pub(super) path: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    #[serde(deserialize_with = "address::deserialize")]
    pub listen: SocketAddr,
    #[serde(deserialize_with = "address::deserialize")]
    pub grpc_listen: Option<SocketAddr>,
    pub grpc_max_streams: u32,
    pub max_connections: usize,
    pub max_connections_per_peer: Option<usize>,
    #[serde(rename = "max_connection_age_ms", with = "millis")]
    pub max_connection_age: Duration,
    #[serde(rename = "header_read_timeout_ms", with = "millis")]
    pub header_read_timeout: Duration,
    #[serde(rename = "body_read_timeout_ms", with = "millis")]
    pub body_read_timeout: Duration,
    #[serde(rename = "write_timeout_ms", with = "millis")]
    pub write_timeout: Duration,
    #[serde(rename = "min_write_bytes_per_s")]
    pub min_write_rate: u32,
    pub max_header_bytes: usize,
    pub max_headers: usize,
    pub max_body_bytes: usize,
    pub max_bodies_bytes: usize,
    pub(super) tls: Option<ServerFiles>,
    pub metrics: Option<bool>,
    #[serde(rename = "drain_delay_ms", with = "millis")]
    pub drain_delay: Duration,
    #[serde(rename = "drain_grace_ms", with = "millis")]
    pub drain_grace: Duration,
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
            log_format: LogFormat::Text,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub(super) name: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    pub(super) slots_per_instance: Option<u32>,
    #[serde(default = "number::<256, _>")]
    pub(super) max_queue: usize,
    #[serde(default = "percent::<50>")]
    pub queue_wait_share: f64,
    #[serde(default = "number::<4096, _>")]
    pub max_in_flight: usize,
    #[serde(rename = "timeout_ms", default = "seconds::<1>", with = "millis")]
    pub timeout: Duration,
    #[serde(rename = "max_timeout_ms", default = "seconds::<60>", with = "millis")]
    pub max_timeout: Duration,
    #[serde(default = "number::<3, _>")]
    pub max_attempts: u32,
    #[serde(default = "percent::<20>")]
    pub retry_share: f64,
    /// By default an instance's `max_batch_size`.
    #[serde(default = "number::<8, _>")]
    pub max_rows: usize,
    pub(super) tls: Option<ClientSettings>,
    #[serde(default)]
    pub health: HealthSettings,
    #[serde(default)]
    pub(super) strategy: Strategy,
    #[serde(default)]
    pub(super) classes: Vec<Class>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSettings {
    #[serde(rename = "interval_ms", with = "millis")]
    pub interval: Duration,
    #[serde(rename = "recovery_interval_ms", with = "millis")]
    pub recovery_interval: Duration,
    #[serde(rename = "timeout_ms", with = "millis")]
    pub timeout: Duration,
    pub failures: u32,
    #[serde(rename = "connect_timeout_ms", with = "millis")]
    pub connect_timeout: Duration,
    #[serde(rename = "suspect_after_ms", with = "millis")]
    pub suspect_after: Duration,
    pub eject_after_failures: u32,
    #[serde(rename = "eject_ms", with = "millis")]
    pub eject: Duration,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) strategy: Strategy,
}

/// A strategy's own settings, and the models and instances that serve it, in one table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Strategy {
    pub(super) settings: StrategyConfig,
    pub(super) models: Models,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Models {
    pub(super) encoder: Option<EncoderKind>,
    /// By default the encoder's usual one.
    pub(super) decoding: Option<Decoding>,
    /// The backup model, or the entry of a learned code.
    pub(super) model: Option<String>,
    pub(super) version: Option<u64>,
    pub(super) instances: Option<Instances>,
    pub(super) tls: Option<ClientSettings>,
    pub(super) slots_per_instance: Option<u32>,
    pub(super) max_queue: Option<usize>,
    pub(super) max_coding_queue: Option<usize>,
    pub(super) parity: Vec<Parity>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parity {
    pub(super) model: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    pub(super) tls: Option<ClientSettings>,
    pub(super) slots_per_instance: Option<u32>,
    pub(super) max_queue: Option<usize>,
}

impl Models {
    pub(super) fn decoding(&self) -> Option<Decoding> {
        self.decoding.or(self.encoder.map(EncoderKind::usual_decoding))
    }
}

fn fields_of_models(kind: &str) -> &'static str {
    match kind {
        "approximate_backup" => "model version instances tls slots_per_instance max_queue",
        "coded" | "coded_hedged" => "encoder decoding model version max_coding_queue parity",
        _ => "",
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let table = Table::try_from(&self.settings).and_then(|mut table| {
            table.extend(Table::try_from(&self.models)?);
            if let Some(decoding) = self.models.decoding() {
                table.insert("decoding".to_owned(), Value::try_from(decoding)?);
            }
            Ok(table)
        });
        table.map_err(S::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut settings = Table::deserialize(from)?;
        let kind = settings.get("kind").and_then(Value::as_str);
        let mut models = Table::new();
        for name in fields_of_models(kind.unwrap_or_default()).split(' ') {
            models.extend(settings.remove_entry(name));
        }
        Ok(Self {
            settings: strategy(settings).map_err(D::Error::custom)?,
            models: toml_file::convert(models).map_err(D::Error::custom)?,
        })
    }
}

/// Reads a strategy by its kind: serde's tagged enum would lose the path of a mistake.
fn strategy(mut table: Table) -> Result<StrategyConfig, String> {
    let kind = table.remove("kind");
    Ok(match kind.as_ref().and_then(Value::as_str) {
        Some("replicate") => StrategyConfig::Replicate(toml_file::convert(table)?),
        Some("hedge") => StrategyConfig::Hedge(toml_file::convert(table)?),
        Some("approximate_backup") => StrategyConfig::ApproximateBackup(toml_file::convert(table)?),
        Some("coded") => StrategyConfig::Coded(toml_file::convert(table)?),
        Some("coded_hedged") => StrategyConfig::CodedHedged(toml_file::convert(table)?),
        _ => {
            table.extend(kind.map(|kind| ("kind".to_owned(), kind)));
            toml_file::convert(table)?
        }
    })
}

fn number<const N: u16, T: From<u16>>() -> T {
    T::from(N)
}

fn percent<const N: u8>() -> f64 {
    f64::from(N) / 100.0
}

const fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}
