//! An instance without a model: it computes the linear model itself.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use http::{HeaderMap, StatusCode};
use parapet_net::server::{Limits, Server};
use parapet_net::tls::ServerTls;
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, HEADER_CONTENT_LENGTH, InferResponse, Tensor, decode_request,
    encode_response,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;

use super::{INPUTS, OUTPUTS, linear};

/// An input that is never answered.
pub const HANG: f32 = -777.0;

/// The time limit of the last request, in microseconds, by the bits of its first number: tests of
/// one process share it.
pub static TIMEOUTS_US: Mutex<BTreeMap<u32, u64>> = Mutex::new(BTreeMap::new());

/// Answers at once, but for [`HANG`], with the request's id and parameters.
pub async fn start(tls: Option<Arc<ServerTls>>) -> SocketAddr {
    start_of(OUTPUTS, tls).await
}

pub async fn start_all<const N: usize>() -> [SocketAddr; N] {
    start_all_of(OUTPUTS).await
}

pub async fn start_all_of<const N: usize>(outputs: usize) -> [SocketAddr; N] {
    let started = futures::future::join_all((0..N).map(|_| start_of(outputs, None))).await;
    started.try_into().unwrap()
}

/// The same with the first `outputs` of the linear model's values as its only ones.
async fn start_of(outputs: usize, tls: Option<Arc<ServerTls>>) -> SocketAddr {
    let predict =
        async move |headers: HeaderMap, body: Bytes| predict(outputs, headers, body).await;
    serve(ready_to(post(predict)), tls).await
}

/// Is ready, and answers every query with an error of its own.
pub async fn broken(error: &'static str) -> SocketAddr {
    let error = format!("{{\"error\":\"{error}\"}}");
    let infer = post(async move || (StatusCode::INTERNAL_SERVER_ERROR, error));
    serve(ready_to(infer), None).await
}

/// Metadata of `linear` as another server gives it, with this shape of its input.
pub fn metadata(input: &[i64]) -> String {
    let tensor = |name, shape| json!([{ "name": name, "datatype": "FP32", "shape": shape }]);
    let (inputs, outputs) = (tensor("input", input), tensor("output", &[-1, OUTPUTS as i64]));
    let tensors = json!({ "inputs": inputs, "outputs": outputs });
    let mut model = json!({ "name": "linear", "versions": ["3"], "platform": "tensorrt_plan" });
    model.as_object_mut().unwrap().extend(tensors.as_object().unwrap().clone());
    model.to_string()
}

/// Answers as [`start`] does, and gives this metadata of any model, with and without a version.
pub async fn describing(metadata: &Arc<Mutex<String>>) -> SocketAddr {
    let predict =
        async move |headers: HeaderMap, body: Bytes| predict(OUTPUTS, headers, body).await;
    let (mut app, infer) = (Router::new(), post(predict));
    let metadata = Arc::clone(metadata);
    let describe = get(async move || metadata.lock().clone());
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        app = app
            .route(model, describe.clone())
            .route(&format!("{model}/ready"), get(async || "{}"))
            .route(&format!("{model}/infer"), infer.clone());
    }
    serve(app, None).await
}

/// The same with the right metadata but for the shape of its input.
pub async fn describing_input(shape: &[i64]) -> SocketAddr {
    describing(&Arc::new(Mutex::new(metadata(shape)))).await
}

fn ready_to(infer: MethodRouter) -> Router {
    Router::new()
        .route("/v2/models/{model}/versions/1/ready", get(async || "{}"))
        .route("/v2/models/{model}/versions/1/infer", infer)
}

async fn serve(app: Router, tls: Option<Arc<ServerTls>>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(app, Limits::default()).with_tls(tls);
    tokio::spawn(server.run(listener, std::future::pending(), Duration::ZERO));
    address
}

async fn predict(outputs: usize, headers: HeaderMap, body: Bytes) -> Response {
    let number = |value: &http::HeaderValue| value.to_str().unwrap().parse().unwrap();
    let length = number(&headers[HEADER_CONTENT_LENGTH]) as usize;
    let request = decode_request(body, Some(length)).unwrap();
    let values = request.inputs[0].f32s().unwrap();
    if let Some(timeout) = headers.get("parapet-timeout-us") {
        TIMEOUTS_US.lock().insert(values[0].to_bits(), number(timeout));
    }
    if values[0] == HANG {
        std::future::pending::<()>().await;
    }
    let samples = values.chunks(INPUTS);
    let shape = vec![samples.len(), outputs];
    let answers: Vec<f32> = samples.flat_map(|one| linear(one).into_iter().take(outputs)).collect();
    let mut parameters = request.parameters;
    parameters.remove(BINARY_DATA_OUTPUT);
    parameters.extend(request.id.map(|id| ("asked_as".to_owned(), id.into())));
    let response = InferResponse {
        model_name: "linear".to_owned(),
        model_version: None,
        id: None,
        parameters,
        outputs: vec![Tensor {
            parameters: request.inputs[0].parameters.clone(),
            ..Tensor::from_f32("output", shape, &answers).unwrap()
        }],
    };
    let encoded = encode_response(&response, |_| true).unwrap();
    let length = encoded.header_length.unwrap().to_string();
    ([(HEADER_CONTENT_LENGTH, length)], encoded.body).into_response()
}
