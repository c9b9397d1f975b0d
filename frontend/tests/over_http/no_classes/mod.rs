//! A model whose output is one value, as of a regressor or a sigmoid: reconstructions over HTTP and
//! gRPC.

use parapet_open_inference::grpc::message::ModelInferRequest;
use parapet_open_inference::grpc::write_request;

use super::support::fixture::parameters;
use super::*;

/// Two replicas, a parity instance, and a frontend that listens for both protocols.
async fn start() -> Cluster {
    let at = instance::start_all_of::<3>(1).await;
    let repository = repository_of(&[1]);
    let slots = "slots_per_instance = 4";
    let text = coded_toml(repository.path(), &at[..2], &at[2..], slots);
    let cluster = Cluster::of(Vec::new(), repository, &with_server(&text, GRPC)).await;
    cluster.served.wait_until_all_are_up(3).await;
    cluster
}

#[tokio::test]
async fn a_reconstruction_of_one_value_has_no_confidence_over_http() {
    let cluster = start().await;
    let (quick, late) = tokio::join!(
        infer(cluster.address, &SAMPLE, ""),
        infer(cluster.address, &[HANG; INPUTS], r#""timeout":2000000"#)
    );
    assert_eq!(quick.status, StatusCode::OK);
    assert_eq!(late.status, StatusCode::OK, "{}", late.text());
    // The model's own answer.
    assert_eq!(quick.header("parapet-confidence"), Some("1.0000"));
    assert_eq!(quick.json()["parameters"]["confidence"], 1.0);

    assert_eq!(late.header("parapet-provenance"), Some("reconstructed"));
    assert_close(&late.values(), &linear(&[HANG; INPUTS])[..1]);
    assert_eq!(late.header("parapet-confidence"), None);
    let parameters = late.json()["parameters"].clone();
    for name in ["confidence", "confidence_calibrated"] {
        assert_eq!(parameters.get(name), None, "{parameters}");
    }
}

fn grpc_request(sample: &[f32]) -> ModelInferRequest {
    let mut request = infer_request(sample);
    request.parameters = parameters(&[("timeout", 2_000_000.into())]);
    write_request("linear", None, &request)
}

#[tokio::test]
async fn a_reconstruction_of_one_value_has_no_confidence_over_grpc() {
    let cluster = start().await;
    let mut first = cluster.served.grpc_client().await;
    let mut second = first.clone();
    let (quick, late) = tokio::join!(
        first.model_infer(grpc_request(&SAMPLE)),
        second.model_infer(grpc_request(&[HANG; INPUTS]))
    );
    let (quick, late) = (quick.unwrap(), late.unwrap());
    let said = quick.metadata();
    assert_eq!(said.get("parapet-confidence").unwrap(), "1.0000");
    let said = late.metadata();
    assert_eq!(said.get("parapet-provenance").unwrap(), "reconstructed");
    assert_eq!(said.get("parapet-confidence"), None);
    let parameters = &late.get_ref().parameters;
    assert!(!parameters.contains_key("confidence"), "{parameters:?}");
}
