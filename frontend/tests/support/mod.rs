//! A repository of exactly linear models, configurations for it, and a client.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support; each test file uses its own part"
)]

pub mod backend;
pub mod fixture;
pub mod instance;
pub mod memory;
pub mod process;
pub mod served;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use parapet_config::repository::{
    Calibration, CodeMetadata, ModelToml, Platform, Score, TensorSpec,
};
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_frontend::config::{ConfigError, FrontendConfig};
use parapet_onnx::linear_model;
use parapet_open_inference::{Datatype, InferRequest, Tensor};

pub const INPUTS: usize = 4;
pub const OUTPUTS: usize = 3;
const WEIGHTS: [f32; INPUTS * OUTPUTS] =
    [1.0, 2.0, 0.0, -1.0, 0.5, 0.0, 3.0, 1.0, -2.0, 1.0, 1.0, 0.0];

pub const INFER: &str = "/v2/models/linear/infer";
pub const SAMPLE: [f32; INPUTS] = [1.0, 2.0, 3.0, 4.0];

/// Returns the outputs of the model `linear` for one sample.
pub fn linear(sample: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| row.iter().zip(sample).map(|(w, x)| w * x).sum();
    WEIGHTS.chunks(INPUTS).map(row).collect()
}

/// The same for several samples.
pub fn linear_all(samples: &[f32]) -> Vec<f32> {
    samples.chunks(INPUTS).flat_map(linear).collect()
}

/// Models `linear` and, since a linear model is its own parity model for the sum code,
/// `linear-parity` (k = 2).
pub fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    add_model(root.path(), "linear", None);
    add_parity_row(root.path(), "linear-parity", 0, sum(2, 1));
    root
}

pub fn sum(k: usize, r: usize) -> CodeSpec {
    CodeSpec::new(EncoderKind::Sum, k, r)
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

pub fn spec(name: &str, datatype: Datatype, shape: &[usize]) -> TensorSpec {
    let (name, shape) = (name.to_owned(), shape.to_vec().into());
    TensorSpec { name, datatype, shape }
}

/// Inputs and outputs of a model.
pub type Tensors = (Vec<TensorSpec>, Vec<TensorSpec>);

/// The one input, and one output of `shape`.
fn tensors(shape: &[usize]) -> Tensors {
    let input = spec("input", Datatype::Fp32, &[INPUTS]);
    (vec![input], vec![spec("output", Datatype::Fp32, shape)])
}

/// An entry whose one output has `shape`, without a graph: for instances that need none.
pub fn add_model_of(root: &Path, name: &str, shape: &[usize], code: Option<CodeMetadata>) {
    add_entry(root, name, Platform::OnnxRuntime, tensors(shape), code);
}

pub fn entry(
    name: &str,
    platform: Platform,
    (inputs, outputs): Tensors,
    code: Option<CodeMetadata>,
) -> ModelToml {
    ModelToml {
        name: name.to_owned(),
        platform,
        inputs,
        outputs,
        output: None,
        code,
        training: toml::Table::new(),
    }
}

pub fn add_entry(
    root: &Path,
    name: &str,
    platform: Platform,
    tensors: Tensors,
    code: Option<CodeMetadata>,
) {
    let model = entry(name, platform, tensors, code);
    model.save(&root.join(name)).unwrap();
    fs::create_dir_all(root.join(name).join("1")).unwrap();
    fs::write(root.join(name).join("1/model.onnx"), b"not looked into").unwrap();
}

/// The deployed model `linear` with one output of `shape`, and its parity model `linear-parity` (k
/// = 2), as training with top classes calibrated it: certain, whatever it answers.
pub fn repository_of(shape: &[usize]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    add_model_of(root.path(), "linear", shape, None);
    let mut code = CodeMetadata::new("linear", 0, sum(2, 1));
    code.calibration = Some(calibration(Score::default(), &[], &[1.0]));
    add_model_of(root.path(), "linear-parity", shape, Some(code));
    root
}

pub fn calibration(score: Score, edges: &[f32], agreement: &[f32]) -> Calibration {
    let (edges, agreement) = (edges.to_vec(), agreement.to_vec());
    Calibration { score, edges, agreement, error: None }
}

/// A learned code for `linear`, k = 2 and r = 1, exact since the model is linear: the parity query
/// is the sum of both, and each prediction the parity's output less the other's.
pub fn add_learned_code(root: &Path, name: &str, code: CodeMetadata) {
    let tensors = tensors(&[OUTPUTS]);
    add_entry(root, name, Platform::LearnedCode, tensors, Some(code));
    let version = root.join(name).join("1");
    let encoder = blocks(INPUTS, &[&[1.0, 1.0]]);
    let encoder = linear_model(&[2 * INPUTS], &encoder, &[0.0; INPUTS]).unwrap();
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

/// Loopback addresses with ports from `first_port`.
pub fn addresses(count: u32, first_port: u16) -> Vec<SocketAddr> {
    let ports = (first_port..).take(count as usize);
    ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect()
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

/// The same without a repository.
pub fn foreign_toml(instances: &[SocketAddr], extra: &str) -> String {
    let text = plain_toml(Path::new("nowhere"), instances, extra);
    text.replace("[repository]\npath = \"nowhere\"\n", "")
}

/// The same with the coded strategy, k = 2, and a fixed hold-back.
pub fn coded_toml(
    repository: &Path,
    deployed: &[SocketAddr],
    parity: &[SocketAddr],
    extra: &str,
) -> String {
    format!(
        "{}\n[models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\n\
         hold_back = {{ fixed_ms = 30 }}\naudit_every = 1\n\
         [[models.strategy.parity]]\nmodel = \"linear-parity\"\ninstances = {}\n",
        plain_toml(repository, deployed, extra),
        list(parity),
    )
}

/// As [`plain_toml`], with `strategy` under `[models.strategy]`; one slot an instance.
pub fn strategy_toml(repository: &Path, deployed: &[SocketAddr], strategy: &str) -> String {
    let plain = plain_toml(repository, deployed, "slots_per_instance = 1");
    format!("{plain}\n[models.strategy]\n{strategy}\n")
}

/// The configuration with all listed instances spoken to by `scheme`.
pub fn with_scheme(text: &str, scheme: &str) -> String {
    let listed = text.replace("\"127.0.0.1:", &format!("\"{scheme}://127.0.0.1:"));
    listed.replace(&format!("listen = \"{scheme}://"), "listen = \"")
}

/// The configuration with these lines in `[server]`.
pub fn with_server(text: &str, lines: &str) -> String {
    text.replacen("[server]\n", &format!("[server]\n{lines}\n"), 1)
}

pub const GRPC: &str = "grpc_listen = \"127.0.0.1:0\"";

fn list(addresses: &[SocketAddr]) -> String {
    let quoted = addresses.iter().map(|address| format!("\"{address}\""));
    format!("[{}]", quoted.collect::<Vec<_>>().join(", "))
}

pub fn config(text: &str) -> Result<FrontendConfig, ConfigError> {
    FrontendConfig::parse(Path::new("parapet.toml"), text)
}

/// Checks that the configuration is refused with one line that holds all of `parts`.
pub fn refused(text: &str, parts: &[&str]) {
    let error = config(text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one line: {error:?}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}

/// Rows of a table in text. `=>` stands between columns, `\n` for the end of a line.
pub fn rows<const COLUMNS: usize>(table: &str) -> Vec<[String; COLUMNS]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    let row = |line: &str| {
        let columns = line.split("=>").map(|column| column.trim().replace("\\n", "\n"));
        columns.collect::<Vec<_>>().try_into().expect(line)
    };
    lines.map(row).collect()
}

/// As [`refused`], with `&` between the parts.
pub fn refused_with(text: &str, parts: &str) {
    refused(text, &parts.split(" & ").collect::<Vec<_>>());
}

/// Checks that `text` is refused with each change in the table, whose columns are what is replaced,
/// what stands in its place, and parts of the message, with `&` between them.
pub fn replacements_are_refused(text: &str, table: &str) {
    for [from, to, parts] in rows(table) {
        let wrong = text.replacen(&from, &to, 1);
        assert_ne!(wrong, text, "{from} is not in the text");
        refused_with(&wrong, &parts);
    }
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

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn error(&self) -> String {
        let error = self.json()["error"].as_str().map(str::to_owned);
        error.expect("the protocol's error object")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks that this is the linear model's answer to the sample.
    #[track_caller]
    pub fn is_right(&self, sample: &[f32]) {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        assert_close(&self.values(), &linear(sample));
    }

    /// The first output's values.
    pub fn values(&self) -> Vec<f32> {
        serde_json::from_value(self.json()["outputs"][0]["data"].clone()).unwrap()
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
    let stream = tokio::net::TcpStream::connect(address).await;
    let io = TokioIo::new(stream.expect("the server listens"));
    let handshake = hyper::client::conn::http1::handshake(io);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if headers.iter().all(|(name, _)| *name != "host") {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(body));
    let sent = sender.send_request(request.body(body).unwrap()).await;
    let (parts, body) = sent.expect("a response").into_parts();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

pub async fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, Method::GET, path, &[], b"").await
}

pub async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Answer {
    request(address, Method::POST, path, headers, body.as_ref()).await
}

pub fn gzipped(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// A JSON body for one sample.
pub fn body(sample: &[f32], parameters: &str) -> String {
    format!(
        r#"{{"id":"q","parameters":{{{parameters}}},"inputs":[{{"name":"input","datatype":"FP32","shape":[1,{INPUTS}],"data":{sample:?}}}]}}"#
    )
}

pub async fn infer(address: SocketAddr, sample: &[f32], parameters: &str) -> Answer {
    post(address, INFER, &[], body(sample, parameters)).await
}

pub fn input(values: &[f32]) -> Tensor {
    Tensor::from_f32("input", vec![values.len() / INPUTS, INPUTS], values).unwrap()
}

pub fn infer_request(values: &[f32]) -> InferRequest {
    InferRequest { inputs: vec![input(values)], ..InferRequest::default() }
}

#[track_caller]
pub fn assert_close(a: &[f32], b: &[f32]) {
    let close = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
    assert!(close, "{a:?} is not {b:?}");
}

/// A loopback address that nothing listens on.
pub fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// The value of the first line of a scrape that begins so.
pub fn metric(text: &str, line: &str) -> Option<f64> {
    let found = text.lines().find(|candidate| candidate.starts_with(line))?;
    found.rsplit(' ').next()?.parse().ok()
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
