//! Finding the server and asking about the model, before the run.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode, Uri};
use parapet_net::client::{Connections, Response};
use parapet_open_inference::ModelMetadata;

use super::{LIMITS, grpc};

/// A server's address: `http://host:port`, or `grpc://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    pub grpc: bool,
    pub(super) authority: String,
    host: String,
    port: u16,
}

#[derive(Debug, Clone)]
pub struct Target {
    pub url: TargetUrl,
    pub(super) address: SocketAddr,
}

pub(super) enum Unanswered {
    Unreachable(String),
    UnknownModel,
    Wrong(String),
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

impl TargetUrl {
    async fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let (found, reason) = match found {
            Ok(found) => (found.collect(), "it has no address".to_owned()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        ensure!(
            !found.is_empty(),
            "target {self}: cannot resolve its host ({reason}); check --target"
        );
        Ok(found)
    }

    fn unreachable(&self, reason: &str) -> anyhow::Error {
        anyhow!("target {self}: unreachable ({reason}); check --target and that the server runs")
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

impl Target {
    /// The server at the host's first address that answers within `limit`; its metadata of `model`.
    pub async fn find(
        url: &TargetUrl,
        model: &str,
        limit: Duration,
    ) -> anyhow::Result<(Self, ModelMetadata)> {
        let path = model_path(model)?;
        let mut unreachable = String::new();
        for address in url.addresses().await? {
            let url = url.clone();
            let target = Self { url, address };
            let asked = tokio::time::timeout(limit, target.ask(model, &path)).await;
            let late = |_| Err(Unanswered::Unreachable(format!("no answer within {limit:?}")));
            let url = &target.url;
            match asked.unwrap_or_else(late) {
                Ok(metadata) => return Ok((target, metadata)),
                Err(Unanswered::Unreachable(reason)) => unreachable = reason,
                Err(Unanswered::UnknownModel) => {
                    bail!("target {url} serves no model {model:?}; check --model")
                }
                Err(Unanswered::Wrong(reason)) => bail!(
                    "target {url}: asked for the metadata of {model}, gave {reason}; is it an Open \
                     Inference Protocol server, and ready?"
                ),
            }
        }
        Err(url.unreachable(&unreachable))
    }

    pub async fn first(url: &TargetUrl) -> anyhow::Result<Self> {
        Ok(Self { url: url.clone(), address: url.addresses().await?[0] })
    }

    pub async fn text(&self, path: &str, limit: Duration) -> anyhow::Result<String> {
        let asked = tokio::time::timeout(limit, self.get(path)).await;
        let response = asked.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")));
        let response = response.and_then(|response| match response.status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&response.body).into_owned()),
            status => Err(format!("{path}: status {status}")),
        });
        response.map_err(|reason| self.url.unreachable(&reason))
    }

    async fn get(&self, path: &str) -> Result<Response, String> {
        let request = Request::get(path).header(hyper::header::HOST, &self.url.authority);
        let request = request.body(Full::new(Bytes::new())).map_err(|error| error.to_string())?;
        let sent = Connections::new(self.address, LIMITS).send(|| request.clone()).await;
        sent.map_err(|error| error.to_string())
    }

    async fn ask(&self, model: &str, path: &str) -> Result<ModelMetadata, Unanswered> {
        if self.url.grpc {
            return grpc::metadata(self.address, model).await;
        }
        let response = self.get(path).await.map_err(Unanswered::Unreachable)?;
        match response.status {
            StatusCode::OK => serde_json::from_slice(&response.body)
                .map_err(|error| Unanswered::Wrong(format!("no model metadata ({error})"))),
            StatusCode::NOT_FOUND => Err(Unanswered::UnknownModel),
            status => Err(Unanswered::Wrong(format!("status {status}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_parse() {
        let url: TargetUrl = "http://[::1]:8000/".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 8000));
        assert_eq!("http://localhost".parse::<TargetUrl>().unwrap().port, 80);
        let url: TargetUrl = "grpc://localhost:9000".parse().unwrap();
        assert!(url.grpc && url.to_string() == "grpc://localhost:9000");
        let wrong = ["", "localhost:8000", "grpc://localhost", "https://a:1", "http://"];
        for wrong in wrong.into_iter().chain(["http://a/b", "http://u@a:1", "ftp://a"]) {
            let refused = wrong.parse::<TargetUrl>().unwrap_err().to_string();
            assert!(refused.contains("is not an address"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn odd_model_names_are_refused() {
        let path = model_path("digits-k2.v1").unwrap();
        assert_eq!(path, "/v2/models/digits-k2.v1");
        for wrong in ["", "a/b", "a b", "..", "é", "a?x"] {
            let refused = model_path(wrong).unwrap_err().to_string();
            assert!(refused.contains("cannot be part of a URL"), "{wrong}");
        }
    }
}
