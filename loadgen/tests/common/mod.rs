//! A server that speaks the protocol, and image files that it can answer for.
//!
//! The first pixel of an image is its class, so that the server knows the right answer.

#![allow(clippy::unwrap_used, dead_code, reason = "tests; each uses a part")]

pub(crate) mod grpc;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Router, serve};
use parapet_open_inference::{
    Datatype, HEADER_CONTENT_LENGTH, InferRequest, InferResponse, ModelMetadata, Tensor,
    TensorMetadata, decode_request, encode_response,
};
use tokio::net::TcpListener;

pub(crate) const CLASSES: usize = 10;
pub(crate) const SIDE: usize = 4;

/// Answer of the server to its n-th request.
pub(crate) type Behaviour = fn(usize, &InferRequest) -> Act;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Exact,
    /// Answers the next class, as reconstructed.
    WrongReconstruction,
    Refuse(StatusCode),
    /// Status 200 with a body that is no answer.
    Garble,
    Never,
}

#[derive(Clone)]
struct App {
    behaviour: Behaviour,
    requests: Arc<AtomicUsize>,
}

/// Serves model `digits` until the runtime ends; counts the requests that it gets.
pub(crate) async fn start(behaviour: Behaviour) -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    (serve_app(app(behaviour, &requests)).await, requests)
}

/// The same with metrics as the frontend's: two instances, and a redundant request for
/// every second one.
pub(crate) async fn start_with_metrics(behaviour: Behaviour) -> (SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let metrics = async move || {
        let issued = counted.load(Ordering::SeqCst) / 2;
        format!(
            "parapet_instance_up{{model=\"digits\",pool=\"deployed\",instance=\"a\"}} 1\n\
             parapet_instance_up{{model=\"digits\",pool=\"parity\",instance=\"b\"}} 0\n\
             parapet_redundant_requests_total{{model=\"digits\",fate=\"issued\"}} {issued}\n\
             parapet_redundant_requests_total{{model=\"others\",fate=\"issued\"}} 99{issued}\n"
        )
    };
    (serve_app(app(behaviour, &requests).route("/metrics", get(metrics))).await, requests)
}

fn app(behaviour: Behaviour, requests: &Arc<AtomicUsize>) -> Router {
    let app = App { behaviour, requests: Arc::clone(requests) };
    Router::new()
        .route("/v2/models/digits", get(metadata))
        .route("/v2/models/digits/infer", post(infer))
        .with_state(app)
}

async fn serve_app(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { serve(listener, router).await });
    address
}

pub(crate) fn model_metadata() -> ModelMetadata {
    let tensor = |name, shape: &[i64]| TensorMetadata::batched(name, Datatype::Fp32, shape);
    ModelMetadata {
        name: "digits".to_owned(),
        versions: vec!["1".to_owned()],
        platform: "test".to_owned(),
        inputs: vec![tensor("image", &[1, SIDE as i64, SIDE as i64])],
        outputs: vec![tensor("scores", &[CLASSES as i64])],
    }
}

async fn metadata() -> Vec<u8> {
    serde_json::to_vec(&model_metadata()).unwrap()
}

async fn infer(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    let number = app.requests.fetch_add(1, Ordering::SeqCst);
    let header_length =
        headers.get(HEADER_CONTENT_LENGTH).map(|value| value.to_str().unwrap().parse().unwrap());
    let request = decode_request(body, header_length).unwrap();
    assert_eq!(request.inputs[0].shape, [1, 1, SIDE, SIDE]);
    let class = (request.inputs[0].f32s().unwrap()[0] * 255.0).round() as usize;
    match (app.behaviour)(number, &request) {
        Act::Exact => answer(&request, class, "exact"),
        Act::WrongReconstruction => answer(&request, (class + 1) % CLASSES, "reconstructed"),
        Act::Refuse(status) => status.into_response(),
        Act::Garble => "{}".into_response(),
        Act::Never => std::future::pending().await,
    }
}

fn answer(request: &InferRequest, class: usize, provenance: &'static str) -> Response {
    let mut scores = [0.0; CLASSES];
    scores[class] = 1.0;
    let output = Tensor::from_f32("scores", [1, CLASSES], &scores).unwrap();
    let response = InferResponse {
        model_name: "digits".to_owned(),
        outputs: vec![output],
        ..InferResponse::default()
    };
    let encoded = encode_response(&response, |output| request.wants_binary(output)).unwrap();
    let mut headers = HeaderMap::new();
    if let Some(length) = encoded.header_length {
        headers.insert(HEADER_CONTENT_LENGTH, length.into());
    }
    headers.insert("parapet-provenance", provenance.parse().unwrap());
    headers.insert("parapet-confidence", "0.7500".parse().unwrap());
    (headers, encoded.body).into_response()
}

/// Writes `count` images and their classes.
pub(crate) fn write_data(folder: &Path, count: u8) {
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, SIDE as u8, 0, 0, 0, SIDE as u8];
    let mut labels = vec![0, 0, 8, 1, 0, 0, 0, count];
    for row in 0..count {
        let class = row % CLASSES as u8;
        images.extend([class; SIDE * SIDE]);
        labels.push(class);
    }
    std::fs::write(folder.join("images"), images).unwrap();
    std::fs::write(folder.join("labels"), labels).unwrap();
}
