//! Configuration: flags over a TOML file over defaults.

mod settings;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use parapet_config::FileError;
use parapet_config::log::LogFormat;
use parapet_config::repository::ModelEntry;
use parapet_net::server::Limits;
use parapet_net::tls::ServerFiles;
use serde::Deserialize;
use serde_with::DeserializeFromStr;

use crate::batching::BatchPolicy;
use crate::engine::Provider;
pub use settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Serves users: no faults are injected.
    Production,
    Development,
}

/// A model to serve: `NAME` for its latest version, `NAME@latest:N` or `NAME@1+3`.
#[derive(Debug, Clone, PartialEq, Eq, DeserializeFromStr)]
pub struct ModelChoice {
    pub name: String,
    pub versions: VersionPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    /// This many of the highest versions, or all where there are fewer.
    Latest(NonZeroUsize),
    Specific(Vec<u64>),
}

impl VersionPolicy {
    /// The versions of `model`, or an error where one is not there.
    pub(crate) fn of(&self, model: &ModelEntry) -> Result<Vec<u64>, FileError> {
        match self {
            Self::Latest(count) => {
                let skipped = model.versions.len().saturating_sub(count.get());
                Ok(model.versions.iter().skip(skipped).copied().collect())
            }
            Self::Specific(versions) => {
                let found = versions.iter().map(|&version| model.version_folder(version));
                found.collect::<Result<Vec<_>, _>>().map(|_| versions.clone())
            }
        }
    }
}

impl FromStr for ModelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, versions) = text.split_once('@').unwrap_or((text, "latest:1"));
        let versions = match versions.strip_prefix("latest:") {
            Some(count) => count.parse().map(VersionPolicy::Latest),
            None => {
                let versions = versions.split('+').map(str::parse);
                versions.collect::<Result<_, _>>().map(VersionPolicy::Specific)
            }
        };
        let versions = versions.map_err(|_| {
            format!("model {text:?}: write NAME, NAME@latest:2, or NAME@1+3 with the versions")
        })?;
        Ok(Self { name: name.to_owned(), versions })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub repository: PathBuf,
    pub models: Vec<ModelChoice>,
    pub listen: SocketAddr,
    pub grpc_listen: Option<SocketAddr>,
    pub health_listen: Option<SocketAddr>,
    /// The files of the listeners' TLS; plain HTTP and gRPC without them.
    pub tls: Option<ServerFiles>,
    pub threads: NonZeroUsize,
    /// Sessions of each model, which run batches of one queue at the same time.
    pub count: NonZeroUsize,
    /// Each session runs a batch of one row and one of the most before the instance is ready.
    pub warm_up: bool,
    pub batch: BatchPolicy,
    pub queue_capacity: NonZeroUsize,
    pub max_body_bytes: usize,
    pub body_timeout: Duration,
    /// Time for a prediction, from the end of the request's body.
    pub request_timeout: Duration,
    pub limits: Limits,
    pub drain_grace: Duration,
    pub log_format: LogFormat,
    pub onnxruntime: Option<PathBuf>,
    pub provider: Provider,
    pub fault_profile: Option<PathBuf>,
    /// The instance's number among those that share the profile.
    pub fault_instance: u64,
    /// When the experiment began, in milliseconds since 1970.
    pub fault_epoch_unix_ms: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{0} is not set: give --{0} or put {key} into the configuration file",
        key = .0.replace('-', "_")
    )]
    Missing(&'static str),
    #[error("{given} is set without {missing}: give both or neither")]
    HalfTls { given: &'static str, missing: &'static str },
    #[error(
        "fault-profile is refused with environment = \"production\": remove it, or set \
            \"development\""
    )]
    FaultsInProduction,
}

impl Config {
    /// Reads the configuration file that the flags name, if any, and fills in the defaults.
    pub fn from_flags(flags: Settings) -> Result<Self, ConfigError> {
        match flags.config.clone() {
            None => Self::new(flags),
            Some(path) => Self::new(flags.or(parapet_config::toml_file::read(&path)?)),
        }
    }

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
        let millis = |setting: Option<u64>, default| setting.map_or(default, Duration::from_millis);
        let seconds = Duration::from_secs;
        let defaults = Limits::default();
        let (connections, header_ms) = (settings.max_connections, settings.header_read_timeout_ms);
        let limits = Limits {
            max_connections: connections.map_or(defaults.max_connections, NonZeroUsize::get),
            // The frontends are its only peers, and each sends no more than an instance has slots.
            max_connections_per_peer: usize::MAX,
            header_read_timeout: millis(header_ms, defaults.header_read_timeout),
            write_timeout: millis(settings.write_timeout_ms, defaults.write_timeout),
            max_header_bytes: settings.max_header_bytes.unwrap_or(defaults.max_header_bytes),
            ..defaults
        };
        let batch = BatchPolicy {
            max_rows: settings.max_batch_size.map_or(8, NonZeroUsize::get),
            max_delay: Duration::from_micros(settings.max_batch_delay_us.unwrap_or(0).into()),
        };
        Ok(Self {
            repository: settings.repository.ok_or(ConfigError::Missing("repository"))?,
            models,
            listen: settings.listen.unwrap_or(LISTEN),
            grpc_listen: settings.grpc_listen,
            health_listen: settings.health_listen,
            tls,
            threads: settings.threads.unwrap_or(NonZeroUsize::MIN),
            count: settings.count.unwrap_or(NonZeroUsize::MIN),
            warm_up: settings.warm_up.unwrap_or(true),
            batch,
            queue_capacity: settings.queue_capacity.unwrap_or(QUEUE_CAPACITY),
            max_body_bytes: settings.max_body_bytes.unwrap_or(16 << 20),
            body_timeout: millis(settings.body_timeout_ms, seconds(10)),
            request_timeout: millis(settings.request_timeout_ms, seconds(30)),
            limits,
            drain_grace: millis(settings.drain_grace_ms, seconds(10)),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
            onnxruntime: settings.onnxruntime,
            provider: settings.provider.unwrap_or_default(),
            fault_profile: settings.fault_profile,
            fault_instance: settings.fault_instance.unwrap_or(0),
            fault_epoch_unix_ms: settings.fault_epoch_unix_ms,
        })
    }
}

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9001);
const QUEUE_CAPACITY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(127);

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
        (Some(certificate), Some(key)) => {
            Ok(Some(ServerFiles { certificate, key, client_ca, client_crl }))
        }
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
        let file = "repository = \"models\"\nmodel = [\"a\", \"b@3+1\"]\nmax_batch_size = \
            4\nqueue_capacity = 9\nprovider = \"cuda:1\"\nwarm_up = false\ncount = 2\n";
        let config = parse(file, &["--queue-capacity", "5", "--listen", "0.0.0.0:0"]).unwrap();
        let name = "b".to_owned();
        let versions = VersionPolicy::Specific(vec![3, 1]);
        assert_eq!(config.models[1], ModelChoice { name, versions });
        assert_eq!((config.batch.max_rows, config.queue_capacity.get()), (4, 5));
        assert_eq!((config.provider, config.warm_up), (Provider::Cuda(1), false));
        assert_eq!((config.count.get(), config.listen.port()), (2, 0));
        assert_eq!(config.batch.max_delay, Duration::ZERO);
        assert_eq!(parse(file, &["--model", "c,d"]).unwrap().models.len(), 2);
    }

    #[test]
    fn version_policy_is_parsed_or_told_how() {
        let two = VersionPolicy::Latest(NonZeroUsize::MIN.saturating_add(1));
        assert_eq!("a@latest:2".parse::<ModelChoice>().unwrap().versions, two);
        for text in ["a@", "a@new", "a@latest", "a@latest:0", "a@1+", "a@-1"] {
            let error = text.parse::<ModelChoice>().unwrap_err();
            assert!(error.contains(text) && error.contains("write NAME, NAME@latest:2"), "{error}");
        }
    }

    #[test]
    fn mistakes_are_one_line() {
        const GOOD: &str = "repository = \"models\"\nmodel = [\"a\"]\n";
        let faults = ["--fault-profile", "f.toml"];
        let production = "environment = \"production\"";
        for (more, flags, named) in [
            ("sped = 1", &[][..], "line 3: unknown field `sped`"),
            ("threads = 0", &[], "line 3"),
            ("provider = \"gpu\"", &[], "line 3: provider: write cpu, cuda, tensorrt or"),
            (production, &faults, "production"),
            ("", &["--tls-certificate", "a.crt"], "tls-certificate is set without tls-key"),
            ("tls_key = \"a.key\"", &[], "tls-key is set without tls-certificate"),
            ("", &["--tls-client-ca", "ca.pem"], "tls-client-ca is set without"),
            ("", &["--tls-client-crl", "a"], "tls-client-crl is set without tls-client-ca"),
        ] {
            let error = parse(&format!("{GOOD}{more}"), flags).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
        for (file, named) in
            [("model = [\"a\"]", "repository is not set"), ("repository = \"models\"", "--model")]
        {
            let error = parse(file, &[]).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
        assert!(parse(GOOD, &faults).unwrap().fault_profile.is_some());
    }
}
