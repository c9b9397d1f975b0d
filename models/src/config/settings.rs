//! The settings as flags and as the keys of the configuration file.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Environment, ModelChoice};
use crate::engine::Provider;
use parapet_config::address;
use parapet_config::log::LogFormat;

/// Serves models of a repository by the Open Inference Protocol.
///
/// Every flag but --config is also a key of the configuration file, with underscores; flags win.
#[derive(Debug, Clone, Default, Deserialize, clap::Parser)]
#[command(name = "parapet-instance", version, after_help = include_str!("help.txt"))]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// TOML file with further settings
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Folder of the model repository
    #[arg(long, value_name = "DIR")]
    pub repository: Option<PathBuf>,
    /// Models to serve, with NAME@latest:2 or NAME@1+3 of other versions than the latest
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub model: Option<Vec<ModelChoice>>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:9001]
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    #[serde(default, deserialize_with = "address::deserialize")]
    pub listen: Option<SocketAddr>,
    /// Address to listen on for gRPC; port 0 takes a free one [default: no gRPC]
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    #[serde(default, deserialize_with = "address::deserialize")]
    pub grpc_listen: Option<SocketAddr>,
    /// Address for health and metrics alone, in the clear: for probes and scrapers without a
    /// certificate [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse)]
    #[serde(default, deserialize_with = "address::deserialize")]
    pub health_listen: Option<SocketAddr>,
    /// Certificate of the listeners, which then speak TLS: PEM, its own first [default: plain HTTP
    /// and gRPC]
    #[arg(long, value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Authorities that sign the certificates of clients, PEM [default: clients need none]
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Revocation lists of those authorities, PEM [default: none]
    #[arg(long, value_name = "FILE")]
    pub tls_client_crl: Option<PathBuf>,
    /// Threads of each model's operators [default: 1]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Sessions of each model, which run batches at the same time [default: 1]
    #[arg(long, value_name = "N")]
    pub count: Option<NonZeroUsize>,
    /// Runs batches of zeros in each session before the instance is ready [default: true]
    #[arg(long, value_name = "BOOL")]
    pub warm_up: Option<bool>,
    /// Rows of a batch at most [default: 8]
    #[arg(long, value_name = "N")]
    pub max_batch_size: Option<NonZeroUsize>,
    /// Longest wait of a request for others to fill its batch [default: 0]
    #[arg(long, value_name = "US")]
    pub max_batch_delay_us: Option<u32>,
    /// Requests of a model that may wait [default: 128]
    #[arg(long, value_name = "N")]
    pub queue_capacity: Option<NonZeroUsize>,
    /// Bytes of a request's body at most [default: 16777216]
    #[arg(long, value_name = "BYTES")]
    pub max_body_bytes: Option<usize>,
    /// Time for a request's body to arrive [default: 10000]
    #[arg(long, value_name = "MS")]
    pub body_timeout_ms: Option<u64>,
    /// Time for a prediction [default: 30000]
    #[arg(long, value_name = "MS")]
    pub request_timeout_ms: Option<u64>,
    /// Connections open at the same time [default: 1024]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,
    /// Time for a request's header to arrive; idle connections close after it [default: 30000]
    #[arg(long, value_name = "MS")]
    pub header_read_timeout_ms: Option<u64>,
    /// Time for which a client may take nothing of its response [default: 10000]
    #[arg(long, value_name = "MS")]
    pub write_timeout_ms: Option<u64>,
    /// Bytes of a request's header at most [default: 16384]
    #[arg(long, value_name = "BYTES")]
    pub max_header_bytes: Option<usize>,
    /// Time for requests in flight on shutdown [default: 10000]
    #[arg(long, value_name = "MS")]
    pub drain_grace_ms: Option<u64>,
    /// Form of the log, on standard error [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// The ONNX Runtime library [default: ORT_DYLIB_PATH, else beside the executable or set up
    /// above it]
    #[arg(long, value_name = "FILE")]
    pub onnxruntime: Option<PathBuf>,
    /// Execution provider of ONNX Runtime: cpu, cuda, tensorrt or openvino, all but cpu perhaps with
    /// a device, as cuda:1 [default: cpu]
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<Provider>,
    /// Where the instance runs; production refuses fault injection [default: development]
    #[arg(long, value_name = "ENVIRONMENT")]
    pub environment: Option<Environment>,
    /// Injects the faults that this file describes
    #[arg(long, value_name = "FILE")]
    pub fault_profile: Option<PathBuf>,
    /// This instance's number among those that share the fault profile [default: 0]
    #[arg(long, value_name = "N")]
    pub fault_instance: Option<u64>,
    /// Start of the experiment for faults that instances have in common, in ms since 1970 [default:
    /// this start]
    #[arg(long, value_name = "MS")]
    pub fault_epoch_unix_ms: Option<u64>,
}

macro_rules! first_set {
    ($first:ident, $second:ident: $($field:ident),* $(,)?) => {
        Self { $($field: $first.$field.or($second.$field)),* }
    };
}

impl Settings {
    pub fn or(self, other: Self) -> Self {
        first_set!(
            self, other:
            config, repository, model, listen, grpc_listen, health_listen, tls_certificate, tls_key,
            tls_client_ca, tls_client_crl, threads, count, warm_up, max_batch_size,
            max_batch_delay_us, queue_capacity, max_body_bytes, body_timeout_ms, request_timeout_ms,
            max_connections,
            header_read_timeout_ms, write_timeout_ms, max_header_bytes, drain_grace_ms, log_format,
            onnxruntime, provider, environment, fault_profile, fault_instance, fault_epoch_unix_ms
        )
    }
}
