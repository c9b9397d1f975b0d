//! Finding the server and asking about the model, before the run.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use parapet_net::client::{Connections, Response};
use parapet_open_inference::ModelMetadata;

use super::LIMITS;
use super::grpc::{self, Unanswered};
use super::url::{TargetError, TargetUrl, model_path};

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
