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
mod free_axes;
mod grpc;
mod no_classes;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::fs;
use std::net::SocketAddr;

use http::StatusCode;
use parapet_models::Instance;
use parapet_open_inference::{Encoding, decode_response, encode_request};
use support::instance::{self, HANG};
use support::served::*;
use support::*;

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
        let instances = coded_instances(repository.path(), &[]).await;
        let at: Vec<SocketAddr> = instances.iter().map(|one| one.address).collect();
        let text = coded_toml(repository.path(), &at[..2], &at[2..], "max_rows = 8");
        Self::of(instances, repository, &text).await
    }

    async fn of(instances: Vec<Instance>, repository: tempfile::TempDir, text: &str) -> Self {
        let served = serve(repository, text).await;
        Self { address: served.address, served, _instances: instances }
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
        post(self.address, path, headers, body).await
    }

    /// The error object's text; the status must be `status`.
    async fn refused(
        &self,
        fields: &[(&str, &str)],
        body: impl AsRef<[u8]>,
        status: u16,
    ) -> String {
        let answer = self.post(INFER, fields, body).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        answer.error()
    }
}

#[tokio::test]
async fn answers_json_with_provenance() {
    let cluster = Cluster::start().await;
    let answer = infer(cluster.address, &SAMPLE, "").await;
    answer.is_right(&SAMPLE);
    let json = answer.json();
    assert_eq!(json["model_name"], "linear");
    assert_eq!(json["model_version"], "1");
    assert_eq!(json["id"], "q");
    assert_eq!(json["parameters"]["provenance"], "exact");
    assert_eq!(json["parameters"]["confidence"], 1.0);
    assert_eq!(answer.header("parapet-provenance"), Some("exact"));
    assert_eq!(answer.header("x-request-id").map(str::len), Some(16));
}

#[tokio::test]
async fn id_and_foreign_parameters_go_to_the_instance_and_come_back() {
    let repository = repository();
    let at = instance::start_all::<3>().await;
    let text = coded_toml(repository.path(), &at[..2], &at[2..], "");
    let served = serve(repository, &text).await;
    let asked = r#""temperature":0.5,"priority":3,"sequence_id":0,"timeout":900000"#;
    for _ in 0..4 {
        let answer = infer(served.address, &SAMPLE, asked).await;
        answer.is_right(&SAMPLE);
        let json = answer.json();
        assert_eq!(json["id"], "q");
        let told = &json["parameters"];
        assert_eq!(told["asked_as"], "q");
        assert_eq!((&told["temperature"], &told["priority"]), (&0.5.into(), &3.into()));
        assert_eq!(told["provenance"], "exact");
        assert!(told.get("timeout").is_none() && told.get("sequence_id").is_none());
    }
    // Those of one tensor.
    let own =
        body(&SAMPLE, "").replace(r#""datatype""#, r#""parameters":{"codec":"np"},"datatype""#);
    let answer = post(served.address, INFER, &[], own).await.json();
    assert_eq!(answer["outputs"][0]["parameters"]["codec"], "np", "{answer}");
    let uncoded = "parapet_queries_uncoded_total{model=\"linear\"";
    let metrics = served.metrics().await;
    assert_eq!(metric(&metrics, uncoded), Some(5.0), "no group has them");
    let sequence = infer(served.address, &SAMPLE, r#""sequence_id":7"#).await;
    assert_eq!(sequence.status, StatusCode::BAD_REQUEST);
    assert!(sequence.error().contains("\"sequence_id\""), "{}", sequence.text());
}

#[tokio::test]
async fn a_header_may_name_the_class_and_an_unknown_one_is_refused() {
    let cluster = Cluster::start().await;
    let plain = body(&SAMPLE, "");
    let (known, vip) = ([("parapet-class", "default")], [("parapet-class", "vip")]);
    let answer = cluster.post(INFER, &known, &plain).await;
    answer.is_right(&SAMPLE);
    let error = cluster.refused(&vip, &plain, 400).await;
    for part in ["class", "one of default"] {
        assert!(error.contains(part), "{error}");
    }
    let named = body(&SAMPLE, r#""class":"default""#);
    let body_counts = cluster.post(INFER, &vip, named).await;
    // The body's own word counts.
    assert_eq!(body_counts.status, StatusCode::OK);
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
    let headers = [length, ("x-request-id", "mine-7")];
    let answer = cluster.post(INFER, &headers, &encoded.body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.header("x-request-id"), Some("mine-7"));
    let header_length = answer.header(length.0).unwrap().parse().unwrap();
    let response = decode_response(answer.body.clone(), Some(header_length)).unwrap();
    assert_eq!(response.outputs[0].shape, [2, OUTPUTS]);
    let values = response.outputs[0].f32s().unwrap();
    assert_close(&values, &linear_all(&samples));
}

#[tokio::test]
async fn says_what_it_serves() {
    let cluster = Cluster::start().await;
    let at = cluster.address;
    assert_eq!(get(at, "/v2").await.json()["name"], "parapet");
    let metadata = get(at, "/v2/models/linear").await.json();
    let shape = serde_json::json!([-1, INPUTS]);
    assert_eq!(metadata["inputs"][0]["shape"], shape);
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
async fn tritons_extensions_that_read_are_answered() {
    let cluster = Cluster::start().await;
    let at = cluster.address;
    infer(at, &SAMPLE, "").await.is_right(&SAMPLE);
    assert_eq!(get(at, "/v2/models").await.json()["models"][0], "linear");
    let config = get(at, "/v2/models/linear/config").await.json();
    let input = serde_json::json!({"name": "input", "data_type": "TYPE_FP32", "dims": [INPUTS]});
    assert_eq!((&config["max_batch_size"], &config["input"][0]), (&8.into(), &input));
    for path in ["/v2/models/linear/versions/1/stats", "/v2/models/stats"] {
        let stats = &get(at, path).await.json()["model_stats"][0];
        assert_eq!((&stats["name"], &stats["inference_count"]), (&"linear".into(), &1.into()));
    }
    let index = cluster.post("/v2/repository/index", &[], "{}").await.json();
    let entry = serde_json::json!([
        {"name": "linear", "version": "1", "state": "READY", "reason": ""}
    ]);
    assert_eq!(index, entry);
    for change in ["load", "unload"] {
        let path = format!("/v2/repository/models/linear/{change}");
        let refused = cluster.post(&path, &[], "{}").await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert!(refused.error().contains("configuration"), "{}", refused.text());
    }
    let top = r#""outputs":[{"name":"output","parameters":{"classification":1}}],"inputs""#;
    let body = body(&SAMPLE, "").replacen(r#""inputs""#, top, 1);
    let top = &cluster.post(INFER, &[], body).await.json()["outputs"][0];
    let scores = linear(&SAMPLE).into_iter().enumerate();
    let (class, score) = scores.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!((&top["datatype"], &top["shape"]), (&"BYTES".into(), &vec![1, 1].into()));
    assert_eq!(top["data"][0], format!("{score:.6}:{class}"));
    let unknown = get(at, "/v2/models/other/config").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.error().contains("only linear"), "{}", unknown.text());
}

#[tokio::test]
async fn a_request_of_more_rows_than_an_instance_takes_is_refused_with_the_limit() {
    for scheme in ["http", "grpc"] {
        let repository = repository();
        let flags = ["--max-batch-size", "2", "--grpc-listen", "127.0.0.1:0"];
        let instances = coded_instances(repository.path(), &flags).await;
        let address = |instance: &Instance| match scheme {
            "grpc" => instance.grpc_address.unwrap(),
            _ => instance.address,
        };
        let at: Vec<SocketAddr> = instances.iter().map(address).collect();
        let text = coded_toml(repository.path(), &at[..2], &at[2..], "max_rows = 8");
        let cluster = Cluster::of(instances, repository, &with_scheme(&text, scheme)).await;
        for (rows, status) in [(2, 200), (3, 400)] {
            let samples = SAMPLE.repeat(rows);
            let shape = format!("[{rows},{INPUTS}]");
            let body = body(&samples, "").replace(&format!("[1,{INPUTS}]"), &shape);
            let answer = cluster.post(INFER, &[], body).await;
            assert_eq!(answer.status.as_u16(), status, "{scheme}: {}", answer.text());
            assert!(status == 200 || answer.error().contains("send 1 to 2"), "{}", answer.text());
        }
        let config = get(cluster.address, "/v2/models/linear/config").await.json();
        assert_eq!(config["max_batch_size"], 2, "{scheme}");
    }
}

#[tokio::test]
async fn drains_gracefully() {
    let cluster = Cluster::start().await;
    cluster.served.stop().await;
    let connected = tokio::net::TcpStream::connect(cluster.address).await;
    assert!(connected.is_err(), "nothing listens any more");
}
