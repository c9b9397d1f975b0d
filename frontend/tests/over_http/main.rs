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
use std::time::Duration;

use clap::Parser as _;
use http::{Method, StatusCode};
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_frontend::Frontend;
use parapet_models::config::Settings;
use parapet_models::{Config, Instance};
use parapet_open_inference::{Encoding, InferRequest, Tensor, decode_response, encode_request};
use support::{
    INPUTS, OUTPUTS, add_learned_code, add_parity_row, close, coded_toml, config, get, infer,
    learned_metadata, linear, repository, request, strategy_toml, wait_until,
};
use tokio::sync::oneshot;

const INFER: &str = "/v2/models/linear/infer";

struct Cluster {
    address: SocketAddr,
    grpc_address: Option<SocketAddr>,
    _instances: Vec<Instance>,
    shutdown: Option<oneshot::Sender<()>>,
    stopped: tokio::task::JoinHandle<()>,
    _repository: tempfile::TempDir,
}

async fn instance(repository: &std::path::Path, model: &str) -> Instance {
    instance_with(repository, model, &[]).await
}

async fn instance_with(repository: &std::path::Path, model: &str, more: &[&str]) -> Instance {
    let repository = repository.to_str().unwrap();
    let flags = [
        "parapet-instance",
        "--repository",
        repository,
        "--listen",
        "127.0.0.1:0",
        "--model",
        model,
    ];
    let flags = flags.iter().chain(more);
    Instance::start(Config::from_flags(Settings::try_parse_from(flags).unwrap()).unwrap())
        .await
        .unwrap()
}

impl Cluster {
    async fn start() -> Self {
        let repository = repository();
        let mut instances = Vec::new();
        for model in ["linear", "linear", "linear-parity"] {
            instances.push(instance(repository.path(), model).await);
        }
        let addresses: Vec<SocketAddr> = instances.iter().map(Instance::address).collect();
        Self::of(instances, repository, |root| {
            coded_toml(root, &addresses[..2], &addresses[2..], "max_rows = 8")
        })
        .await
    }

    /// A frontend with the configuration `text`, which names these instances.
    async fn of(
        instances: Vec<Instance>,
        repository: tempfile::TempDir,
        text: impl FnOnce(&std::path::Path) -> String,
    ) -> Self {
        let text = text(repository.path());
        let frontend = Frontend::bind(config(&text).unwrap()).await.unwrap();
        let address = frontend.address().unwrap();
        let grpc_address = frontend.grpc_address().unwrap();
        let (shutdown, asked) = oneshot::channel();
        let stopped = tokio::spawn(async move {
            frontend.run(async move { drop(asked.await) }).await;
        });
        let cluster = Self {
            address,
            grpc_address,
            _instances: instances,
            shutdown: Some(shutdown),
            stopped,
            _repository: repository,
        };
        cluster.wait_until_ready().await;
        cluster
    }

    async fn wait_until_ready(&self) {
        let ready = async || get(self.address, "/v2/health/ready").await.status == StatusCode::OK;
        wait_until("ready", Duration::from_secs(2), ready).await;
    }

    async fn wait_until_all_are_up(&self, instances: usize) {
        let all_up = async || {
            let metrics = get(self.address, "/metrics").await;
            let text = String::from_utf8_lossy(&metrics.body).into_owned();
            let up = text
                .lines()
                .filter(|line| line.starts_with("parapet_instance_up{") && line.ends_with(" 1"));
            up.count() == instances
        };
        wait_until("all up", Duration::from_secs(2), all_up).await;
    }

    /// Asks for all samples at once; every answer must be right.
    async fn ask_all<const N: usize>(&self, samples: [[f32; 4]; N]) -> Vec<support::Answer> {
        let asked = samples.map(|sample| {
            let address = self.address;
            tokio::spawn(async move { infer(address, &sample, "").await })
        });
        let mut answers = Vec::new();
        for (asked, sample) in asked.into_iter().zip(samples) {
            let answer = asked.await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
            assert!(
                close(&answer.values(), &linear(&sample)),
                "{:?}",
                answer.body
            );
            answers.push(answer);
        }
        answers
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> support::Answer {
        request(self.address, Method::POST, path, headers, body).await
    }

    /// The error object's text; the status must be `status`.
    async fn refused(&self, headers: &[(&str, &str)], body: &[u8], status: u16) -> String {
        let answer = self.post(INFER, headers, body).await;
        assert_eq!(answer.status.as_u16(), status, "{:?}", answer.body);
        answer.json()["error"]
            .as_str()
            .expect("the protocol's error object")
            .to_owned()
    }
}

#[tokio::test]
async fn answers_json_with_provenance() {
    let cluster = Cluster::start().await;
    let sample = [1.0, 2.0, 3.0, 4.0];
    let answer = infer(cluster.address, &sample, "").await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert!(close(&answer.values(), &linear(&sample)));
    let json = answer.json();
    assert_eq!(
        (json["model_name"].as_str(), json["model_version"].as_str()),
        (Some("linear"), Some("1"))
    );
    assert_eq!(
        (
            json["id"].as_str(),
            json["parameters"]["provenance"].as_str()
        ),
        (Some("q"), Some("exact"))
    );
    assert_eq!(json["parameters"]["confidence"].as_f64(), Some(1.0));
    assert_eq!(answer.header("parapet-provenance"), Some("exact"));
    assert!(
        answer
            .header("x-request-id")
            .is_some_and(|id| id.len() == 16)
    );
}

#[tokio::test]
async fn a_header_may_name_the_class_and_an_unknown_one_is_refused() {
    let cluster = Cluster::start().await;
    let body = support::body(&[1.0, 2.0, 3.0, 4.0], "");
    let known = cluster
        .post(INFER, &[("parapet-class", "default")], body.as_bytes())
        .await;
    assert_eq!(known.status, StatusCode::OK, "{:?}", known.body);
    let error = cluster
        .refused(&[("parapet-class", "vip")], body.as_bytes(), 400)
        .await;
    assert!(
        error.contains("class") && error.contains("one of default"),
        "{error}"
    );
    let body = support::body(&[1.0, 2.0, 3.0, 4.0], r#""class":"default""#);
    let body_counts = cluster
        .post(INFER, &[("parapet-class", "vip")], body.as_bytes())
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
    let input = Tensor::from_f32("input", vec![2, INPUTS], &samples).unwrap();
    let mut request = InferRequest {
        inputs: vec![input],
        ..InferRequest::default()
    };
    request.ask_binary_outputs();
    let encoded = encode_request(&request, Encoding::Binary).unwrap();
    let length = encoded.header_length.unwrap().to_string();
    let headers = [
        ("inference-header-content-length", length.as_str()),
        ("x-request-id", "mine-7"),
    ];
    let answer = cluster.post(INFER, &headers, &encoded.body).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_eq!(answer.header("x-request-id"), Some("mine-7"));
    let header_length = answer
        .header("inference-header-content-length")
        .unwrap()
        .parse()
        .unwrap();
    let response = decode_response(answer.body.clone(), Some(header_length)).unwrap();
    assert_eq!(response.outputs[0].shape, [2, OUTPUTS]);
    let expected: Vec<f32> = samples.chunks(INPUTS).flat_map(linear).collect();
    assert!(close(&response.outputs[0].f32s().unwrap(), &expected));
}

#[tokio::test]
async fn says_what_it_serves() {
    let cluster = Cluster::start().await;
    let at = cluster.address;
    assert_eq!(get(at, "/v2").await.json()["name"], "parapet");
    assert_eq!(get(at, "/v2/health/live").await.status, StatusCode::OK);
    let metadata = get(at, "/v2/models/linear").await.json();
    assert_eq!(
        metadata["inputs"][0]["shape"],
        serde_json::json!([-1, INPUTS])
    );
    assert_eq!(
        get(at, "/v2/models/linear/versions/1").await.status,
        StatusCode::OK
    );
    assert_eq!(
        get(at, "/v2/models/linear/ready").await.status,
        StatusCode::OK
    );
    assert_eq!(
        get(at, "/v2/models/linear/versions/1/ready").await.status,
        StatusCode::OK
    );
    for path in [
        "/v2/models/other",
        "/v2/models/linear/versions/2",
        "/v2/models/linear/versions/2/ready",
        "/v3",
    ] {
        let answer = get(at, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
    let answer = get(at, INFER).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(answer.json()["error"].is_string());
}

#[tokio::test]
async fn metrics_name_what_happened() {
    let cluster = Cluster::start().await;
    for _ in 0..4 {
        infer(cluster.address, &[1.0, 2.0, 3.0, 4.0], "").await;
    }
    cluster.refused(&[], b"{", 400).await;
    let scraped = get(cluster.address, "/metrics").await;
    let content_type = scraped.header("content-type").unwrap();
    assert!(content_type.starts_with("text/plain; version=0.0.4"));
    let text = String::from_utf8(scraped.body.to_vec()).unwrap();
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
    let mut cluster = Cluster::start().await;
    cluster.shutdown.take().unwrap().send(()).unwrap();
    cluster.stopped.await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(cluster.address)
            .await
            .is_err(),
        "nothing listens any more"
    );
}
