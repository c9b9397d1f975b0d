//! Finding the server and asking about the model, before the run.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, Uri};
use parapet_net::client::{Connections, Response};
use parapet_open_inference::ModelMetadata;

use super::LIMITS;
use super::grpc::{self, Unanswered};
use crate::payload::WireEncoding;

/// A server's address: `http://host:port`, or `grpc://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    grpc: bool,
    authority: String,
    host: String,
    port: u16,
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

impl TargetUrl {
    /// Returns true if the server is to be asked over gRPC.
    pub fn is_grpc(&self) -> bool {
        self.grpc
    }

    /// Host and port, for the `Host` header.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Connects within `limit`, asks for `model`'s metadata, and returns it with the
    /// address that answered.
    ///
    /// # Errors
    /// [`TargetError`]: the host does not resolve, does not answer, lacks the model, or does not
    /// speak the protocol.
    pub async fn metadata(
        &self,
        model: &str,
        limit: Duration,
    ) -> Result<(SocketAddr, ModelMetadata), TargetError> {
        let mut refused = self.unresolved("it has no address".to_owned());
        for address in self.addresses().await? {
            let asked = tokio::time::timeout(limit, self.ask(address, model)).await;
            match asked
                .unwrap_or_else(|_| Err(self.unreachable(format!("no answer within {limit:?}"))))
            {
                Ok(metadata) => return Ok((address, metadata)),
                Err(error @ TargetError::Unreachable { .. }) => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// The first address of the host.
    ///
    /// # Errors
    /// [`TargetError::Resolve`].
    pub async fn address(&self) -> Result<SocketAddr, TargetError> {
        let first = self.addresses().await?.next();
        first.ok_or_else(|| self.unresolved("it has no address".to_owned()))
    }

    async fn addresses(&self) -> Result<impl Iterator<Item = SocketAddr>, TargetError> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        found.map_err(|error| self.unresolved(error.to_string()))
    }

    fn unresolved(&self, reason: String) -> TargetError {
        TargetError::Resolve {
            target: self.to_string(),
            reason,
        }
    }

    fn unreachable(&self, reason: String) -> TargetError {
        TargetError::Unreachable {
            target: self.to_string(),
            reason,
        }
    }

    /// Returns the body of a GET of `path` at `address`, within `limit`.
    ///
    /// # Errors
    /// [`TargetError::Unreachable`], for any status but 200 too.
    pub async fn text(
        &self,
        address: SocketAddr,
        path: &str,
        limit: Duration,
    ) -> Result<String, TargetError> {
        let asked = tokio::time::timeout(limit, self.get(address, path));
        let response = asked
            .await
            .unwrap_or_else(|_| Err(self.unreachable(format!("no answer within {limit:?}"))))?;
        match response.status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&response.body).into_owned()),
            status => Err(self.unreachable(format!("{path}: status {status}"))),
        }
    }

    async fn get(&self, address: SocketAddr, path: &str) -> Result<Response, TargetError> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(hyper::header::HOST, &self.authority)
            .body(Full::new(Bytes::new()))
            .map_err(|error| self.unreachable(error.to_string()))?;
        let sent = Connections::new(address, LIMITS)
            .send(|| request.clone())
            .await;
        sent.map_err(|error| self.unreachable(error.to_string()))
    }

    async fn ask(&self, address: SocketAddr, model: &str) -> Result<ModelMetadata, TargetError> {
        let metadata = |reason: String| TargetError::Metadata {
            target: self.to_string(),
            model: model.to_owned(),
            reason,
        };
        if self.grpc {
            return grpc::metadata(address, model)
                .await
                .map_err(|unanswered| match unanswered {
                    Unanswered::Unreachable(reason) => self.unreachable(reason),
                    Unanswered::Wrong(reason) => metadata(reason),
                    Unanswered::UnknownModel => TargetError::UnknownModel {
                        target: self.to_string(),
                        model: model.to_owned(),
                    },
                });
        }
        let response = self.get(address, &model_path(model)?).await?;
        match response.status {
            StatusCode::OK => serde_json::from_slice(&response.body)
                .map_err(|error| metadata(format!("no model metadata ({error})"))),
            StatusCode::NOT_FOUND => Err(TargetError::UnknownModel {
                target: self.to_string(),
                model: model.to_owned(),
            }),
            status => Err(metadata(format!("status {status}"))),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_parse() {
        let url: TargetUrl = "http://[::1]:8000/".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 8000));
        assert_eq!("http://localhost".parse::<TargetUrl>().unwrap().port, 80);
        let url: TargetUrl = "grpc://localhost:9000".parse().unwrap();
        assert!(url.is_grpc() && url.to_string() == "grpc://localhost:9000");
        for wrong in [
            "",
            "localhost:8000",
            "grpc://localhost",
            "https://a:1",
            "http://",
            "http://a/b",
            "http://u@a:1",
            "ftp://a",
        ] {
            assert!(
                matches!(wrong.parse::<TargetUrl>(), Err(TargetError::Url { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn odd_model_names_are_refused() {
        assert_eq!(
            model_path("digits-k2.v1").unwrap(),
            "/v2/models/digits-k2.v1"
        );
        for wrong in ["", "a/b", "a b", "..", "é", "a?x"] {
            assert!(
                matches!(model_path(wrong), Err(TargetError::ModelName { .. })),
                "{wrong}"
            );
        }
    }
}
