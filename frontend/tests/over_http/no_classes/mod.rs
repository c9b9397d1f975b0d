//! A model whose output is one value, as of a regressor or a sigmoid: reconstructions over HTTP and
//! gRPC.

use std::time::Duration;

use http::StatusCode;
use parapet_open_inference::grpc::message::ModelInferRequest;
use parapet_open_inference::grpc::{InferenceClient, write_request};
use parapet_open_inference::{InferRequest, Tensor};
use tonic::transport::Endpoint;

use super::Cluster;
use super::support::instance::{HANG, start_of};
use super::support::{INPUTS, close, coded_toml, infer, linear, repository_of};

const SAMPLE: [f32; INPUTS] = [1.0, 2.0, 3.0, 4.0];

/// Two replicas, a parity instance, and a frontend that listens for both protocols.
async fn start() -> Cluster {
    let mut at = Vec::new();
    for _ in 0..3 {
        at.push(start_of(1, None).await);
    }
    let cluster = Cluster::of(Vec::new(), repository_of(&[1]), |root| {
        coded_toml(root, &at[..2], &at[2..], "slots_per_instance = 4")
            .replace("[server]\n", "[server]\ngrpc_listen = \"127.0.0.1:0\"\n")
    })
    .await;
    cluster.wait_until_all_are_up(3).await;
    cluster
}

#[tokio::test]
async fn a_reconstruction_of_one_value_has_no_confidence_over_http() {
    let cluster = start().await;
    let (quick, late) = tokio::join!(
        infer(cluster.address, &SAMPLE, ""),
        infer(cluster.address, &[HANG; INPUTS], r#""timeout":2000000"#)
    );
    assert_eq!(
        (quick.status, late.status),
        (StatusCode::OK, StatusCode::OK),
        "{:?}",
        late.body
    );
    assert_eq!(
        quick.header("parapet-confidence"),
        Some("1.0000"),
        "the model's own answer"
    );
    assert_eq!(quick.json()["parameters"]["confidence"], 1.0);

    assert_eq!(late.header("parapet-provenance"), Some("reconstructed"));
    assert!(
        close(&late.values(), &linear(&[HANG; INPUTS])[..1]),
        "{:?}",
        late.body
    );
    assert_eq!(late.header("parapet-confidence"), None);
    let parameters = late.json()["parameters"].clone();
    assert_eq!(parameters.get("confidence"), None, "{parameters}");
    assert_eq!(
        parameters.get("confidence_calibrated"),
        None,
        "{parameters}"
    );
}

fn grpc_request(sample: &[f32]) -> ModelInferRequest {
    let input = Tensor::from_f32("input", vec![1, INPUTS], sample).unwrap();
    let mut request = InferRequest {
        inputs: vec![input],
        ..InferRequest::default()
    };
    let timeout = u64::try_from(Duration::from_secs(2).as_micros()).unwrap();
    request
        .parameters
        .insert("timeout".to_owned(), timeout.into());
    write_request("linear", None, &request)
}

#[tokio::test]
async fn a_reconstruction_of_one_value_has_no_confidence_over_grpc() {
    let cluster = start().await;
    let address = cluster.grpc_address.unwrap();
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let (mut first, mut second) = (
        InferenceClient::new(channel.clone()),
        InferenceClient::new(channel),
    );
    let (quick, late) = tokio::join!(
        first.model_infer(grpc_request(&SAMPLE)),
        second.model_infer(grpc_request(&[HANG; INPUTS]))
    );
    let (quick, late) = (quick.unwrap(), late.unwrap());
    assert_eq!(
        quick.metadata().get("parapet-confidence").unwrap(),
        "1.0000"
    );
    assert_eq!(
        late.metadata().get("parapet-provenance").unwrap(),
        "reconstructed"
    );
    assert_eq!(late.metadata().get("parapet-confidence"), None);
    assert!(
        !late.get_ref().parameters.contains_key("confidence"),
        "{:?}",
        late.get_ref().parameters
    );
}
