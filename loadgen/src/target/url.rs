//! Address of a server.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, ensure};
use hyper::Uri;

/// A server's address: `http://host:port`, or `grpc://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    pub(super) grpc: bool,
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for TargetUrl {
    type Err = anyhow::Error;

    fn from_str(given: &str) -> anyhow::Result<Self> {
        parse(given).with_context(|| {
            format!(
                "target {given:?} is not an address; give --target as http://host:port or \
                 grpc://host:port"
            )
        })
    }
}

fn parse(given: &str) -> Option<TargetUrl> {
    let uri: Uri = given.parse().ok()?;
    let authority = uri.authority()?;
    let grpc = match uri.scheme_str() {
        Some("http") => false,
        // There is no usual port.
        Some("grpc") if authority.port().is_some() => true,
        _ => return None,
    };
    let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
    (plain && !authority.as_str().contains('@')).then(|| TargetUrl {
        grpc,
        authority: authority.to_string(),
        host: authority.host().trim_matches(['[', ']']).to_owned(),
        port: authority.port_u16().unwrap_or(80),
    })
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.grpc { "grpc" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority)
    }
}

/// The path of a model's metadata. Names that would need escaping are refused.
pub(super) fn model_path(model: &str) -> anyhow::Result<String> {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    ensure!(
        !matches!(model, "" | "." | "..") && model.bytes().all(plain),
        "model name {model:?} cannot be part of a URL; check --model"
    );
    Ok(format!("/v2/models/{model}"))
}
