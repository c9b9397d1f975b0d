//! Finding the server and asking about the model, before the run.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode};
use parapet_net::client::{Connections, Response};
use parapet_open_inference::ModelMetadata;

use super::url::{TargetUrl, model_path};
use super::{LIMITS, grpc};

/// Reason why the metadata could not be had.
pub(super) enum Unanswered {
    Unreachable(String),
    UnknownModel,
    Wrong(String),
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
    pub async fn metadata(
        &self,
        model: &str,
        limit: Duration,
    ) -> anyhow::Result<(SocketAddr, ModelMetadata)> {
        let path = model_path(model)?;
        let mut refused = self.unresolved("it has no address");
        for address in self.addresses().await? {
            let asked = tokio::time::timeout(limit, self.ask(address, model, &path)).await;
            let late = |_| Err(Unanswered::Unreachable(no_answer(limit)));
            match asked.unwrap_or_else(late) {
                Ok(metadata) => return Ok((address, metadata)),
                Err(Unanswered::Unreachable(reason)) => refused = self.unreachable(&reason),
                Err(Unanswered::UnknownModel) => {
                    bail!("target {self} serves no model {model:?}; check --model")
                }
                Err(Unanswered::Wrong(reason)) => bail!(
                    "target {self}: asked for the metadata of {model}, gave {reason}; is it an \
                     Open Inference Protocol server, and ready?"
                ),
            }
        }
        Err(refused)
    }

    /// The first address of the host.
    pub async fn address(&self) -> anyhow::Result<SocketAddr> {
        let first = self.addresses().await?.next();
        first.ok_or_else(|| self.unresolved("it has no address"))
    }

    async fn addresses(&self) -> anyhow::Result<impl Iterator<Item = SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        found.map_err(|error| self.unresolved(&error.to_string()))
    }

    fn unresolved(&self, reason: &str) -> anyhow::Error {
        anyhow!("target {self}: cannot resolve its host ({reason}); check --target")
    }

    fn unreachable(&self, reason: &str) -> anyhow::Error {
        anyhow!("target {self}: unreachable ({reason}); check --target and that the server runs")
    }

    /// Returns the body of a GET of `path` at `address`, within `limit`.
    pub async fn text(
        &self,
        address: SocketAddr,
        path: &str,
        limit: Duration,
    ) -> anyhow::Result<String> {
        let asked = tokio::time::timeout(limit, self.get(address, path)).await;
        let response = asked.unwrap_or_else(|_| Err(no_answer(limit)));
        match response.map_err(|reason| self.unreachable(&reason))? {
            Response {
                status: StatusCode::OK,
                body,
                ..
            } => Ok(String::from_utf8_lossy(&body).into_owned()),
            Response { status, .. } => Err(self.unreachable(&format!("{path}: status {status}"))),
        }
    }

    async fn get(&self, address: SocketAddr, path: &str) -> Result<Response, String> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(hyper::header::HOST, &self.authority)
            .body(Full::new(Bytes::new()))
            .map_err(|error| error.to_string())?;
        let connections = Connections::new(address, LIMITS);
        let sent = connections.send(|| request.clone()).await;
        sent.map_err(|error| error.to_string())
    }

    async fn ask(
        &self,
        address: SocketAddr,
        model: &str,
        path: &str,
    ) -> Result<ModelMetadata, Unanswered> {
        if self.grpc {
            return grpc::metadata(address, model).await;
        }
        let response = self
            .get(address, path)
            .await
            .map_err(Unanswered::Unreachable)?;
        match response.status {
            StatusCode::OK => serde_json::from_slice(&response.body)
                .map_err(|error| Unanswered::Wrong(format!("no model metadata ({error})"))),
            StatusCode::NOT_FOUND => Err(Unanswered::UnknownModel),
            status => Err(Unanswered::Wrong(format!("status {status}"))),
        }
    }
}

fn no_answer(limit: Duration) -> String {
    format!("no answer within {limit:?}")
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
            let refused = wrong.parse::<TargetUrl>().unwrap_err().to_string();
            assert!(refused.contains("is not an address"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn odd_model_names_are_refused() {
        assert_eq!(
            model_path("digits-k2.v1").unwrap(),
            "/v2/models/digits-k2.v1"
        );
        for wrong in ["", "a/b", "a b", "..", "é", "a?x"] {
            let refused = model_path(wrong).unwrap_err().to_string();
            assert!(
                refused.contains("cannot be part of a URL"),
                "{wrong}: {refused}"
            );
        }
    }
}
