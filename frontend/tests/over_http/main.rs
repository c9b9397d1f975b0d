//! A frontend and real instances over real sockets: the protocol, and every kind of bad input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::type_complexity,
    reason = "tests"
)]

mod bodies;
mod codes;
mod grpc;
mod no_classes;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::net::SocketAddr;

use http::StatusCode;
use parapet_models::Instance;
use parapet_open_inference::{Encoding, InferRequest, Tensor, decode_response, encode_request};
use support::served::{Served, instance_of, serve};
use support::{
    Answer, INFER, INPUTS, OUTPUTS, SAMPLE, add_learned_code, add_parity_row, body, close,
    coded_toml, get, infer, infer_request, learned_metadata, linear, linear_all, post, repository,
    strategy_toml, sum,
};

/// A frontend, and the instances that it asks.
struct Cluster {
    served: Served,
    address: SocketAddr,
    _instances: Vec<Instance>,
}

impl Cluster {
    /// Two replicas and a parity instance.
    async fn start() -> Self {
        let repository = repository();
        let mut instances = Vec::new();
        for model in ["linear", "linear", "linear-parity"] {
            instances.push(instance_of(repository.path(), model, &[]).await);
        }
        let at: Vec<SocketAddr> = instances.iter().map(Instance::address).collect();
        let text = coded_toml(repository.path(), &at[..2], &at[2..], "max_rows = 8");
        Self::of(instances, repository, &text).await
    }

    async fn of(instances: Vec<Instance>, repository: tempfile::TempDir, text: &str) -> Self {
        let served = serve(repository, text).await;
        Self {
            address: served.address,
            served,
            _instances: instances,
        }
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        post(self.address, path, headers, body).await
    }

    /// The error object's text; the status must be `status`.
    async fn refused(
        &self,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
        status: u16,
    ) -> String {
        let answer = self.post(INFER, headers, body).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        answer.error()
    }
}

#[tokio::test]
async fn answers_json_with_provenance() {
    let cluster = Cluster::start().await;
    let answer = infer(cluster.address, &SAMPLE, "").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(close(&answer.values(), &linear(&SAMPLE)));
    let json = answer.json();
    for (field, value) in [
        ("model_name", "linear"),
        ("model_version", "1"),
        ("id", "q"),
    ] {
        assert_eq!(json[field], value);
    }
    assert_eq!(json["parameters"]["provenance"], "exact");
    assert_eq!(json["parameters"]["confidence"], 1.0);
    assert_eq!(answer.header("parapet-provenance"), Some("exact"));
    assert_eq!(answer.header("x-request-id").map(str::len), Some(16));
}

#[tokio::test]
async fn a_header_may_name_the_class_and_an_unknown_one_is_refused() {
    let cluster = Cluster::start().await;
    let plain = body(&SAMPLE, "");
    let known = cluster
        .post(INFER, &[("parapet-class", "default")], &plain)
        .await;
    assert_eq!(known.status, StatusCode::OK, "{}", known.text());
    let error = cluster
        .refused(&[("parapet-class", "vip")], &plain, 400)
        .await;
    assert!(
        error.contains("class") && error.contains("one of default"),
        "{error}"
    );
    let named = body(&SAMPLE, r#""class":"default""#);
    let body_counts = cluster
        .post(INFER, &[("parapet-class", "vip")], named)
        .await;
    assert_eq!(
        body_counts.status,
        StatusCode::OK,
        "the body's own word counts"
    );
}

#[tokio::test]
async fn answers_binary_in_and_out_and_keeps_the_request_id() {
    let cluster = Cluster::start().await;
    let samples = [1.0, 0.0, -1.0, 2.5, 0.0, 1.0, 1.0, 1.0];
    let mut request = infer_request(&samples);
    request.ask_binary_outputs();
    let encoded = encode_request(&request, Encoding::Binary).unwrap();
    let length = encoded.header_length.unwrap().to_string();
    let length = ("inference-header-content-length", length.as_str());
    let answer = cluster
        .post(INFER, &[length, ("x-request-id", "mine-7")], &encoded.body)
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.header("x-request-id"), Some("mine-7"));
    let header_length = answer.header(length.0).unwrap().parse().unwrap();
    let response = decode_response(answer.body.clone(), Some(header_length)).unwrap();
    assert_eq!(response.outputs[0].shape, [2, OUTPUTS]);
    assert!(close(
        &response.outputs[0].f32s().unwrap(),
        &linear_all(&samples)
    ));
}

#[tokio::test]
async fn says_what_it_serves() {
    let cluster = Cluster::start().await;
    let at = cluster.address;
    assert_eq!(get(at, "/v2").await.json()["name"], "parapet");
    let metadata = get(at, "/v2/models/linear").await.json();
    assert_eq!(
        metadata["inputs"][0]["shape"],
        serde_json::json!([-1, INPUTS])
    );
    for (path, status) in [
        ("/v2/health/live", 200),
        ("/v2/models/linear/versions/1", 200),
        ("/v2/models/linear/ready", 200),
        ("/v2/models/linear/versions/1/ready", 200),
        ("/v2/models/other", 404),
        ("/v2/models/linear/versions/2", 404),
        ("/v2/models/linear/versions/2/ready", 404),
        ("/v3", 404),
        (INFER, 405),
    ] {
        let answer = get(at, path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(status == 200 || !answer.error().is_empty(), "{path}");
    }
}

#[tokio::test]
async fn metrics_name_what_happened() {
    let cluster = Cluster::start().await;
    for _ in 0..4 {
        infer(cluster.address, &SAMPLE, "").await;
    }
    cluster.refused(&[], "{", 400).await;
    let scraped = get(cluster.address, "/metrics").await;
    let content_type = scraped.header("content-type").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    let text = scraped.text();
    for expected in [
        r#"parapet_requests_total{model="linear",outcome="exact"} 4"#,
        r#"parapet_requests_total{model="linear",outcome="invalid_request"} 1"#,
        r#"parapet_request_duration_seconds_count{model="linear",provenance="exact"} 4"#,
        r#"parapet_invariant_violations_total{model="linear",invariant="CG-1"} 0"#,
        r#"parapet_instance_up{model="linear",pool="deployed""#,
        "parapet_hold_back_seconds{model=\"linear\"} 0.03",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[tokio::test]
async fn drains_gracefully() {
    let Cluster {
        served, address, ..
    } = Cluster::start().await;
    served.stop().await;
    let connected = tokio::net::TcpStream::connect(address).await;
    assert!(connected.is_err(), "nothing listens any more");
}
