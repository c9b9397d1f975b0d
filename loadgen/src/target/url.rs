//! Address of a server.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

use crate::payload::WireEncoding;

/// A server's address: `http://host:port`, or `grpc://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    pub(super) grpc: bool,
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
}

/// A target that cannot be put under load.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Not an address of the form wanted.
    #[error(
        "target {given:?} is not an address; give --target as http://host:port or grpc://host:port"
    )]
    Url { given: String },
    /// The host has no address.
    #[error("target {target}: cannot resolve its host ({reason}); check --target")]
    Resolve { target: String, reason: String },
    /// Nothing answers there.
    #[error("target {target}: unreachable ({reason}); check --target and that the server runs")]
    Unreachable { target: String, reason: String },
    /// The server does not have the model.
    #[error("target {target} serves no model {model:?}; check --model")]
    UnknownModel { target: String, model: String },
    /// The server answers, but not as the Open Inference Protocol has it.
    #[error(
        "target {target}: asked for the metadata of {model}, gave {reason}; is it an Open \
            Inference Protocol server, and ready?"
    )]
    Metadata {
        target: String,
        model: String,
        reason: String,
    },
    /// The requests' form is the other protocol's.
    #[error(
        "target {target} cannot be sent {encoding}; grpc:// goes with encoding grpc, http:// with \
            binary or json"
    )]
    Encoding {
        target: String,
        encoding: WireEncoding,
    },
    /// The model's name cannot be part of a path.
    #[error("model name {model:?} cannot be part of a URL; check --model")]
    ModelName { model: String },
}

impl FromStr for TargetUrl {
    type Err = TargetError;

    fn from_str(given: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::Url {
            given: given.to_owned(),
        };
        let uri: Uri = given.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let plain = matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && !authority.as_str().contains('@');
        let grpc = match uri.scheme_str() {
            Some("http") => false,
            // There is no usual port.
            Some("grpc") if authority.port().is_some() => true,
            _ => return Err(wrong()),
        };
        if !plain {
            return Err(wrong());
        }
        Ok(Self {
            grpc,
            authority: authority.to_string(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
        })
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.grpc { "grpc" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority)
    }
}

/// The path of a model's metadata. Names that would need escaping are refused: no server
/// here has such.
pub(super) fn model_path(model: &str) -> Result<String, TargetError> {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    if model.is_empty() || matches!(model, "." | "..") || !model.bytes().all(plain) {
        return Err(TargetError::ModelName {
            model: model.to_owned(),
        });
    }
    Ok(format!("/v2/models/{model}"))
}
