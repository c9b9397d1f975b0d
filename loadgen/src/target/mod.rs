//! The server under load.

mod find;
mod grpc;
mod http;

pub use find::{Target, TargetUrl};
pub use grpc::GrpcTransport;
pub use http::HttpTransport;

use parapet_net::client::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::{Body, WireEncoding};

/// Every connection that is idle is kept: a limit on connections would make requests wait for each
/// other and so turn the load into a closed loop, and opening one takes time of the generator's.
const LIMITS: Limits =
    Limits { connect_timeout: None, max_response_bytes: 16 << 20, max_idle: usize::MAX };

/// Carries requests to a server; tests answer from memory.
pub trait Transport: Send + Sync + 'static {
    /// Sends `body` and waits for the answer, however long. Dropping the future gives it up.
    fn send(&self, body: &Body) -> impl Future<Output = Result<Answer, Failure>> + Send;
}

pub enum AnyTransport {
    Http(Box<HttpTransport>),
    Grpc(GrpcTransport),
}

impl AnyTransport {
    pub fn new(target: &Target, model: &str, encoding: WireEncoding) -> anyhow::Result<Self> {
        let (url, grpc) = (&target.url, target.url.grpc);
        anyhow::ensure!(
            grpc == (encoding == WireEncoding::Grpc),
            "target {url} cannot be sent {encoding}; grpc:// goes with encoding grpc, http:// with \
             binary or json"
        );
        Ok(match grpc {
            true => Self::Grpc(GrpcTransport::new(target.address)?),
            false => Self::Http(Box::new(HttpTransport::new(target, model)?)),
        })
    }
}

impl Transport for AnyTransport {
    async fn send(&self, body: &Body) -> Result<Answer, Failure> {
        match self {
            Self::Http(transport) => transport.send(body).await,
            Self::Grpc(transport) => transport.send(body).await,
        }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Provenance {
    /// The model's own prediction. What servers send that say nothing of provenance.
    Exact,
    /// The model's own prediction as well, from a redundant copy of the request.
    Hedged,
    Backup,
    /// Decoded from the other predictions of its coding group.
    Reconstructed,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    pub provenance: Provenance,
    /// The server's confidence in it, `0.0..=1.0`, if it says.
    pub confidence: Option<f32>,
    pub class: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub enum Failure {
    Connect,
    /// The connection ended before the whole answer had come.
    ConnectionLost,
    #[strum(to_string = "http-{0}")]
    Status(u16),
    #[strum(to_string = "grpc-{0}")]
    Grpc(i32),
    /// Status 200 with a body that breaks the protocol.
    InvalidAnswer,
}
