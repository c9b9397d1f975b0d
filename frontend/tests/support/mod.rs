//! A repository of exactly linear models, configurations for it, and a client.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support"
)]

pub mod fixture;
pub mod instance;
pub mod memory;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use parapet_config::repository::{
    Calibration, CodeMetadata, ModelToml, Platform, Score, TensorSpec,
};
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_frontend::config::{ConfigError, FrontendConfig};
use parapet_onnx::linear_model;
use parapet_open_inference::Datatype;

pub const INPUTS: usize = 4;
pub const OUTPUTS: usize = 3;
const WEIGHTS: [f32; INPUTS * OUTPUTS] =
    [1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 3.0, 1.0, -2.0, 1.0, 1.0, 0.0];

/// Returns the outputs of the model `linear` for one sample.
pub fn linear(sample: &[f32]) -> Vec<f32> {
    WEIGHTS
        .chunks(INPUTS)
        .map(|row| row.iter().zip(sample).map(|(w, x)| w * x).sum())
        .collect()
}

/// Models `linear` and, since a linear model is its own parity model for the sum code,
/// `linear-parity` (k = 2).
pub fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    add_model(root.path(), "linear", None);
    add_parity_model(root.path(), "linear-parity", 2);
    root
}

pub fn add_parity_model(root: &Path, name: &str, k: usize) {
    add_parity_row(root, name, 0, CodeSpec::new(EncoderKind::Sum, k, 1));
}

/// The parity model of one row of any code.
pub fn add_parity_row(root: &Path, name: &str, row: usize, spec: CodeSpec) {
    add_model(root, name, Some(CodeMetadata::new("linear", row, spec)));
}

pub fn add_model(root: &Path, name: &str, code: Option<CodeMetadata>) {
    add_model_of(root, name, &[OUTPUTS], code);
    let file = linear_model(&[INPUTS], &WEIGHTS, &[0.0; OUTPUTS]).unwrap();
    fs::write(root.join(name).join("1/model.onnx"), file).unwrap();
}

/// An entry whose one output has `shape`, without a graph: for instances that need none.
pub fn add_model_of(root: &Path, name: &str, shape: &[usize], code: Option<CodeMetadata>) {
    let tensor = |name: &str, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: shape.to_vec(),
    };
    let model = ModelToml {
        name: name.to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: vec![tensor("input", &[INPUTS])],
        outputs: vec![tensor("output", shape)],
        code,
        training: toml::Table::new(),
    };
    model.save(&root.join(name)).unwrap();
    fs::create_dir_all(root.join(name).join("1")).unwrap();
    fs::write(root.join(name).join("1/model.onnx"), b"not looked into").unwrap();
}

/// The deployed model `linear` with one output of `shape`, and its parity model `linear-parity` (k
/// = 2), as training with top classes calibrated it: certain, whatever it answers.
pub fn repository_of(shape: &[usize]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    add_model_of(root.path(), "linear", shape, None);
    let certain = Calibration {
        score: Score::default(),
        edges: Vec::new(),
        agreement: vec![1.0],
    };
    let code = CodeMetadata::new("linear", 0, CodeSpec::new(EncoderKind::Sum, 2, 1));
    let code = CodeMetadata {
        calibration: Some(certain),
        ..code
    };
    add_model_of(root.path(), "linear-parity", shape, Some(code));
    root
}

/// A learned code for `linear`, k = 2 and r = 1, exact since the model is linear: the parity query
/// is the sum of both, and each prediction the parity's output less the other's.
pub fn add_learned_code(root: &Path, name: &str, code: CodeMetadata) {
    let tensor = |name: &str, len| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![len],
    };
    let model = ModelToml {
        name: name.to_owned(),
        platform: Platform::LearnedCode,
        inputs: vec![tensor("input", INPUTS)],
        outputs: vec![tensor("output", OUTPUTS)],
        code: Some(code),
        training: toml::Table::new(),
    };
    model.save(&root.join(name)).unwrap();
    let version = root.join(name).join("1");
    fs::create_dir_all(&version).unwrap();
    let encoder = linear_model(
        &[2 * INPUTS],
        &blocks(INPUTS, &[&[1.0, 1.0]]),
        &[0.0; INPUTS],
    )
    .unwrap();
    fs::write(version.join("encoder.onnx"), encoder).unwrap();
    let decoder = blocks(OUTPUTS, &[&[0.0, -1.0, 1.0], &[-1.0, 0.0, 1.0]]);
    let decoder = linear_model(&[3 * OUTPUTS], &decoder, &[0.0; 2 * OUTPUTS]).unwrap();
    fs::write(version.join("decoder.onnx"), decoder).unwrap();
}

pub fn learned_metadata() -> CodeMetadata {
    CodeMetadata::new("linear", 0, CodeSpec::new(EncoderKind::Learned, 2, 1))
}

/// A matrix of blocks of `size` x `size`, each a multiple of the identity.
fn blocks(size: usize, factors: &[&[f32]]) -> Vec<f32> {
    let mut weights = Vec::new();
    for row in factors {
        for line in 0..size {
            for factor in *row {
                weights.extend((0..size).map(|column| if column == line { *factor } else { 0.0 }));
            }
        }
    }
    weights
}

/// `[[models]]` with no strategy.
pub fn plain_toml(repository: &Path, instances: &[SocketAddr], extra: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body_bytes = 100000\ndrain_grace_ms = 3000\n\
         [repository]\npath = {repository:?}\n\
         [[models]]\nname = \"linear\"\ninstances = {}\n{extra}\n\
         [models.health]\ninterval_ms = 200\nrecovery_interval_ms = 50\ntimeout_ms = 300\n",
        list(instances),
    )
}

/// The same with the coded strategy, k = 2, and a fixed hold-back.
pub fn coded_toml(
    repository: &Path,
    deployed: &[SocketAddr],
    parity: &[SocketAddr],
    extra: &str,
) -> String {
    format!(
        "{}\n[models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\nhold_back = {{ fixed_ms = 30 }}\n\
         audit_every = 1\n\
         [[models.strategy.parity]]\nmodel = \"linear-parity\"\ninstances = {}\n",
        plain_toml(repository, deployed, extra),
        list(parity),
    )
}

/// The same as [`plain_toml`], with what is to stand under `[models.strategy]`; one
/// slot an instance.
pub fn strategy_toml(repository: &Path, deployed: &[SocketAddr], strategy: &str) -> String {
    format!(
        "{}\n[models.strategy]\n{strategy}\n",
        plain_toml(repository, deployed, "slots_per_instance = 1")
    )
}

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    format!("[{}]", quoted.join(", "))
}

pub fn config(text: &str) -> Result<FrontendConfig, ConfigError> {
    FrontendConfig::parse(Path::new("parapet.toml"), text)
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The first output's values.
    pub fn values(&self) -> Vec<f32> {
        let json = self.json();
        json["outputs"][0]["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap() as f32)
            .collect()
    }
}

/// One request on a connection of its own.
pub async fn request(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("the server listens");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let response = sender.send_request(request).await.expect("a response");
    let (parts, body) = response.into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

pub async fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, Method::GET, path, &[], b"").await
}

/// A JSON body for one sample.
pub fn body(sample: &[f32], parameters: &str) -> String {
    format!(
        r#"{{"id":"q","parameters":{{{parameters}}},"inputs":[{{"name":"input","datatype":"FP32","shape":[1,{INPUTS}],"data":{sample:?}}}]}}"#
    )
}

pub async fn infer(address: SocketAddr, sample: &[f32], parameters: &str) -> Answer {
    let body = body(sample, parameters);
    request(
        address,
        Method::POST,
        "/v2/models/linear/infer",
        &[],
        body.as_bytes(),
    )
    .await
}

pub fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3)
}

/// Looks every 20 ms whether `condition` holds: sockets and other processes have no other
/// way to tell.
pub async fn wait_until(what: &str, limit: Duration, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < end, "not {what} within {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
