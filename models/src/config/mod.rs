//! Configuration: flags over a TOML file over defaults.

mod settings;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use parapet_net::server::Limits;
use parapet_net::tls::{Identity, ServerFiles};
use serde::Deserialize;

use crate::batching::BatchPolicy;
pub use settings::Settings;

/// Where the instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Serves users: no faults are injected.
    Production,
    Development,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// An object on each line.
    Json,
}

/// A model to serve: `NAME`, or `NAME@VERSION` for another version than the latest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ModelChoice {
    /// Name in the repository.
    pub name: String,
    /// Version; the latest if `None`.
    pub version: Option<u64>,
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, version)) = text.split_once('@') else {
            return Ok(Self {
                name: text.to_owned(),
                version: None,
            });
        };
        match version.parse() {
            Ok(version) => Ok(Self {
                name: name.to_owned(),
                version: Some(version),
            }),
            Err(_) => Err(format!(
                "model {text:?}: write NAME or NAME@VERSION, the version a number"
            )),
        }
    }
}

impl TryFrom<String> for ModelChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Folder of the model repository.
    pub repository: PathBuf,
    /// Models to serve; not empty.
    pub models: Vec<ModelChoice>,
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address to listen on for gRPC, if any.
    pub grpc_listen: Option<SocketAddr>,
    /// Address for health and metrics in the clear, if any.
    pub health_listen: Option<SocketAddr>,
    /// The files of the HTTP listener's TLS; plain HTTP without them.
    pub tls: Option<ServerFiles>,
    /// Threads of each model's operators.
    pub threads: NonZeroUsize,
    /// Bounds of batches.
    pub batch: BatchPolicy,
    /// Requests of a model that may wait.
    pub queue_capacity: NonZeroUsize,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// Time for a prediction, from the end of the request's body.
    pub request_timeout: Duration,
    /// Bounds on connections.
    pub limits: Limits,
    /// Time for requests in flight on shutdown.
    pub drain_grace: Duration,
    /// Form of the log.
    pub log_format: LogFormat,
    /// The ONNX Runtime library, if not to be looked for.
    pub onnxruntime: Option<PathBuf>,
    /// File of faults to inject.
    pub fault_profile: Option<PathBuf>,
    /// The instance's number among those that share the profile.
    pub fault_instance: u64,
    /// When the experiment began, in milliseconds since 1970.
    pub fault_epoch_unix_ms: Option<u64>,
}

/// A configuration that cannot be used; one line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    /// A setting without a default is missing.
    #[error(
        "{0} is not set: give --{0} or put {key} into the configuration file",
        key = .0.replace('-', "_")
    )]
    Missing(&'static str),
    /// One of the files of TLS without the other that it takes.
    #[error("{given} is set without {missing}: give both or neither")]
    HalfTls {
        given: &'static str,
        missing: &'static str,
    },
    /// Fault injection in production.
    #[error(
        "fault-profile is refused with environment = \"production\": remove it, or set \
            \"development\""
    )]
    FaultsInProduction,
}

impl Config {
    /// Reads the configuration file that the flags name, if any, and fills in the defaults.
    pub fn from_flags(flags: Settings) -> Result<Self, ConfigError> {
        let Some(path) = flags.config.clone() else {
            return Self::new(flags);
        };
        let failed = |problem: String| ConfigError::File {
            path: path.clone(),
            problem,
        };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| failed(format!("cannot read: {error}")))?;
        let file: Settings = parapet_config::toml_file::parse(&text)
            .map_err(|mistake| failed(mistake.to_string()))?;
        Self::new(flags.or(file))
    }

    /// Fills in the defaults.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let environment = settings.environment.unwrap_or(Environment::Development);
        if environment == Environment::Production && settings.fault_profile.is_some() {
            return Err(ConfigError::FaultsInProduction);
        }
        let models = settings.model.unwrap_or_default();
        if models.is_empty() {
            return Err(ConfigError::Missing("model"));
        }
        let clients = (settings.tls_client_ca, settings.tls_client_crl);
        let tls = tls(settings.tls_certificate, settings.tls_key, clients)?;
        let duration =
            |setting: Option<u64>, default| setting.map_or(default, Duration::from_millis);
        let seconds = Duration::from_secs;
        let defaults = Limits::default();
        Ok(Self {
            repository: settings
                .repository
                .ok_or(ConfigError::Missing("repository"))?,
            models,
            listen: settings
                .listen
                .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9001))),
            grpc_listen: settings.grpc_listen,
            health_listen: settings.health_listen,
            tls,
            threads: settings.threads.unwrap_or(NonZeroUsize::MIN),
            batch: BatchPolicy {
                max_rows: settings.max_batch_size.map_or(8, NonZeroUsize::get),
                max_delay: Duration::from_micros(settings.max_batch_delay_us.unwrap_or(0).into()),
            },
            queue_capacity: settings
                .queue_capacity
                .unwrap_or(NonZeroUsize::MIN.saturating_add(127)),
            max_body_bytes: settings.max_body_bytes.unwrap_or(16 << 20),
            body_timeout: duration(settings.body_timeout_ms, seconds(10)),
            request_timeout: duration(settings.request_timeout_ms, seconds(30)),
            limits: Limits {
                max_connections: settings
                    .max_connections
                    .map_or(defaults.max_connections, NonZeroUsize::get),
                // The frontends are its only peers, and each sends no more than an instance has
                // slots.
                max_connections_per_peer: usize::MAX,
                header_read_timeout: duration(
                    settings.header_read_timeout_ms,
                    defaults.header_read_timeout,
                ),
                write_timeout: duration(settings.write_timeout_ms, defaults.write_timeout),
                max_header_bytes: settings
                    .max_header_bytes
                    .unwrap_or(defaults.max_header_bytes),
                ..defaults
            },
            drain_grace: duration(settings.drain_grace_ms, seconds(10)),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
            onnxruntime: settings.onnxruntime,
            fault_profile: settings.fault_profile,
            fault_instance: settings.fault_instance.unwrap_or(0),
            fault_epoch_unix_ms: settings.fault_epoch_unix_ms,
        })
    }
}

fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    (client_ca, client_crl): (Option<PathBuf>, Option<PathBuf>),
) -> Result<Option<ServerFiles>, ConfigError> {
    let half = |given, missing| Err(ConfigError::HalfTls { given, missing });
    if client_ca.is_none() && client_crl.is_some() {
        return half("tls-client-crl", "tls-client-ca");
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some(ServerFiles {
            identity: Identity { certificate, key },
            client_ca,
            client_crl,
        })),
        (Some(_), None) => half("tls-certificate", "tls-key"),
        (None, Some(_)) => half("tls-key", "tls-certificate"),
        (None, None) if client_ca.is_some() => half("tls-client-ca", "tls-certificate"),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn parse(file: &str, flags: &[&str]) -> Result<Config, ConfigError> {
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), file).unwrap();
        let path = config.path().to_str().unwrap();
        let arguments = [&["parapet-instance", "--config", path][..], flags].concat();
        Config::from_flags(Settings::try_parse_from(arguments).unwrap())
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let file = "repository = \"models\"\nmodel = [\"a\", \"b@3\"]\nmax_batch_size = \
            4\nqueue_capacity = 9\n";
        let config = parse(file, &["--queue-capacity", "5", "--listen", "0.0.0.0:0"]).unwrap();
        assert_eq!(
            config.models[1],
            ModelChoice {
                name: "b".to_owned(),
                version: Some(3)
            }
        );
        assert_eq!((config.batch.max_rows, config.queue_capacity.get()), (4, 5));
        assert_eq!(config.listen.port(), 0);
        assert_eq!(config.batch.max_delay, Duration::ZERO);
        assert_eq!(parse(file, &["--model", "c,d"]).unwrap().models.len(), 2);
    }

    #[test]
    fn mistakes_are_one_line() {
        let good = "repository = \"models\"\nmodel = [\"a\"]\n";
        for (file, flags, named) in [
            ("model = [\"a\"]", &[][..], "repository is not set"),
            ("repository = \"models\"", &[], "--model"),
            (
                &format!("{good}sped = 1"),
                &[],
                "line 3: unknown field `sped`",
            ),
            (&format!("{good}threads = 0"), &[], "line 3"),
            (
                &format!("{good}environment = \"production\""),
                &["--fault-profile", "f.toml"],
                "production",
            ),
            (
                good,
                &["--tls-certificate", "a.crt"],
                "tls-certificate is set without tls-key",
            ),
            (
                &format!("{good}tls_key = \"a.key\""),
                &[],
                "tls-key is set without tls-certificate",
            ),
            (
                good,
                &["--tls-client-ca", "ca.pem"],
                "tls-client-ca is set without",
            ),
            (
                good,
                &["--tls-client-crl", "ca.crl"],
                "tls-client-crl is set without tls-client-ca",
            ),
        ] {
            let error = parse(file, flags).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
        let development = parse(good, &["--fault-profile", "f.toml"]).unwrap();
        assert!(development.fault_profile.is_some());
    }
}
