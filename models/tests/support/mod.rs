//! An instance in this process, on a repository of tiny models, and a client.

#![allow(clippy::unwrap_used, dead_code, reason = "tests; each uses a part")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use clap::Parser as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parapet_config::repository::{Datatype, ModelToml, Platform, TensorSpec};
use parapet_models::config::Settings;
use parapet_models::{Config, Instance, StartError};
use parapet_onnx::linear_model;
use parapet_open_inference::{
    Encoding, HEADER_CONTENT_LENGTH, InferRequest, Tensor, encode_request,
};

/// Samples of 3 values; outputs the first and the sum, both times the version.
pub(crate) fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    add_model(root.path(), "linear", &[1, 2]);
    root
}

pub(crate) fn add_model(root: &Path, name: &str, versions: &[u8]) {
    let folder = root.join(name);
    let spec = |name: &str, len| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![len].into(),
    };
    let model = ModelToml {
        name: name.to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: vec![spec("input", 3)],
        outputs: vec![spec("output", 2)],
        output: None,
        code: None,
        training: toml::Table::new(),
    };
    model.save(&folder).unwrap();
    for &version in versions {
        let weights = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0].map(|weight| weight * f32::from(version));
        fs::create_dir_all(folder.join(version.to_string())).unwrap();
        let file = linear_model(&[3], &weights, &[0.0, 0.0]).unwrap();
        fs::write(folder.join(version.to_string()).join("model.onnx"), file).unwrap();
    }
}

pub(crate) fn config(repository: &Path, flags: &[&str]) -> Config {
    let repository = repository.to_str().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--model"];
    let flags = if flags.is_empty() { &["linear"] } else { flags };
    let flags = [&["parapet-instance", "--repository", repository], &listen, flags].concat();
    Config::from_flags(Settings::try_parse_from(flags).unwrap()).unwrap()
}

/// Starts an instance; the first of `flags` names the models.
pub(crate) async fn start(repository: &Path, flags: &[&str]) -> Result<Instance, StartError> {
    Instance::start(config(repository, flags)).await
}

/// Starts an instance with a fault profile.
pub(crate) async fn start_faulty(repository: &Path, profile: &str, flags: &[&str]) -> Instance {
    let file = repository.join("faults.toml");
    fs::write(&file, profile).unwrap();
    let profile = ["linear", "--fault-profile", file.to_str().unwrap()];
    start(repository, &[&profile, flags].concat()).await.unwrap()
}

#[derive(Clone)]
pub(crate) struct Client {
    base: String,
    http: HyperClient<HttpConnector, Full<Bytes>>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }

    /// The data of the first output of an answer in JSON.
    pub(crate) fn data(&self) -> serde_json::Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text());
        self.json()["outputs"][0]["data"].clone()
    }

    pub(crate) fn header_length(&self) -> Option<usize> {
        self.headers
            .get(HEADER_CONTENT_LENGTH)
            .map(|value| value.to_str().unwrap().parse().unwrap())
    }
}

impl Client {
    pub(crate) fn new(instance: &Instance) -> Self {
        Self::at(instance.address)
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let http = HyperClient::builder(TokioExecutor::new()).build_http();
        let base = format!("http://{address}");
        Self { base, http }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// Asks the model `linear` in JSON.
    pub(crate) async fn infer(&self, body: &str) -> Answer {
        let body = body.to_owned().into();
        self.post("/v2/models/linear/infer", &[], body).await
    }

    pub(crate) async fn post(&self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        self.send(Method::POST, path, headers, body).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Answer {
        let uri = format!("{}{path}", self.base);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let (parts, body) = self.http.request(request).await.unwrap().into_parts();
        let (status, headers) = (parts.status, parts.headers);
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status, headers, body }
    }
}

/// A request in the binary form, and the length of its header.
pub(crate) fn binary(inputs: Vec<Tensor>, binary_outputs: bool) -> (Bytes, String) {
    let mut request = InferRequest { inputs, ..InferRequest::default() };
    if binary_outputs {
        request.ask_binary_outputs();
    }
    let encoded = encode_request(&request, Encoding::Binary).unwrap();
    (encoded.body, encoded.header_length.unwrap().to_string())
}

/// A request for `linear` with these samples.
pub(crate) fn request(data: &[[f32; 3]]) -> String {
    let rows = data.len();
    let data = serde_json::to_string(data).unwrap();
    format!(
        r#"{{"inputs":[{{"name":"input","datatype":"FP32","shape":[{rows},3],"data":{data}}}]}}"#
    )
}
