//! A model whose samples have lengths of their own, through a frontend and real instances.

use parapet_config::repository::{Platform, Shape, TensorSpec};
use parapet_onnx::{ElementType, identity_model};
use parapet_open_inference::grpc::{read_response, write_request};
use parapet_open_inference::{Datatype, InferRequest, InferResponse, Tensor};

use super::*;

const ECHO: &str = "/v2/models/linear/infer";
const FLAGS: [&str; 4] = ["--grpc-listen", "127.0.0.1:0", "--max-batch-delay-us", "3000"];

fn free(name: &str, datatype: Datatype, axes: &[i64]) -> TensorSpec {
    let shape = Shape::try_from(axes.to_vec()).unwrap();
    TensorSpec { name: name.to_owned(), datatype, shape }
}

/// Gives `x` and `ids` back, of any length each.
fn echoes() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let side = |suffix: &str| {
        let x = free(&format!("x{suffix}"), Datatype::Fp32, &[-1, 3]);
        vec![x, free(&format!("ids{suffix}"), Datatype::Int64, &[-1])]
    };
    let tensors = (side(""), side("_out"));
    add_entry(root.path(), "linear", Platform::OnnxRuntime, tensors, None);
    let tensors = [("x", ElementType::Float, &[-1, 3][..]), ("ids", ElementType::Int64, &[-1])];
    fs::write(root.path().join("linear/1/model.onnx"), identity_model(&tensors)).unwrap();
    root
}

async fn start(grpc: bool) -> Cluster {
    let repository = echoes();
    let mut instances = Vec::new();
    for _ in 0..2 {
        instances.push(instance_of(repository.path(), "linear", &FLAGS).await);
    }
    let at = |instance: &Instance| match grpc {
        true => instance.grpc_address.unwrap(),
        false => instance.address,
    };
    let at: Vec<SocketAddr> = instances.iter().map(at).collect();
    let text = plain_toml(repository.path(), &at, "") + "[models.strategy]\nkind = \"hedge\"\n";
    let text = with_server(&with_scheme(&text, if grpc { "grpc" } else { "http" }), GRPC);
    Cluster::of(instances, repository, &text).await
}

/// A sample with an `x` of one length, and `ids` of another.
fn sample(length: usize) -> Vec<Tensor> {
    let values: Vec<f32> = (0..3 * length).map(|value| value as f32).collect();
    let ids: Vec<u8> = (0..2 * length).flat_map(|id| (id as u64).to_le_bytes()).collect();
    vec![
        Tensor::from_f32("x", [1, length, 3], &values).unwrap(),
        Tensor::new("ids", Datatype::Int64, vec![1, 2 * length], ids.into()).unwrap(),
    ]
}

#[track_caller]
fn is_echo(response: &InferResponse, inputs: &[Tensor]) {
    for (output, input) in response.outputs.iter().zip(inputs) {
        assert_eq!((&output.shape, &output.data), (&input.shape, &input.data));
    }
    assert_eq!(response.outputs.len(), inputs.len());
}

async fn ask_rest(address: SocketAddr, length: usize, encoding: Encoding) {
    let mut request = InferRequest { inputs: sample(length), ..InferRequest::default() };
    if encoding == Encoding::Binary {
        request.ask_binary_outputs();
    }
    let encoded = encode_request(&request, encoding).unwrap();
    let header = encoded.header_length.map(|length| length.to_string());
    let name = "inference-header-content-length";
    let headers: Vec<_> = header.iter().map(|length| (name, length.as_str())).collect();
    let answer = post(address, ECHO, &headers, &encoded.body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let length = answer.header(name).map(|length| length.parse().unwrap());
    is_echo(&decode_response(answer.body, length).unwrap(), &request.inputs);
}

async fn ask_all(cluster: &Cluster) {
    let mut asked = tokio::task::JoinSet::new();
    for length in [2, 5, 2, 5, 1, 2, 5, 700] {
        for encoding in [Encoding::Json, Encoding::Binary] {
            asked.spawn(ask_rest(cluster.address, length, encoding));
        }
        let mut client = cluster.served.grpc_client().await;
        asked.spawn(async move {
            let request = InferRequest { inputs: sample(length), ..InferRequest::default() };
            let message = write_request("linear", None, &request);
            let answer = client.model_infer(message).await.unwrap().into_inner();
            is_echo(&read_response(answer).unwrap(), &request.inputs);
        });
    }
    while let Some(answered) = asked.join_next().await {
        answered.unwrap();
    }
}

#[tokio::test]
async fn requests_of_several_lengths_are_answered_at_once() {
    for grpc in [false, true] {
        ask_all(&start(grpc).await).await;
    }
}

#[tokio::test]
async fn a_stream_has_requests_of_several_lengths() {
    let cluster = start(true).await;
    let message = |length| {
        let request = InferRequest { inputs: sample(length), ..InferRequest::default() };
        write_request("linear", None, &request)
    };
    let asked = [3, 8].map(message).to_vec();
    let mut answers = grpc::stream_of(&cluster, "ModelStreamInfer", asked).await.unwrap();
    for length in [3, 8] {
        let answer = answers.message().await.unwrap().unwrap();
        let response = read_response(answer.infer_response.unwrap()).unwrap();
        is_echo(&response, &sample(length));
    }
}

#[tokio::test]
async fn metadata_has_minus_one_and_a_wrong_fixed_axis_is_refused() {
    let cluster = start(false).await;
    let described = get(cluster.address, "/v2/models/linear").await.json();
    assert_eq!(described["inputs"][0]["shape"], serde_json::json!([-1, -1, 3]));
    assert_eq!(described["outputs"][1]["shape"], serde_json::json!([-1, -1]));
    let mut inputs = sample(4);
    inputs[0] = Tensor::from_f32("x", [1, 2, 6], &[0.0; 12]).unwrap();
    let request = InferRequest { inputs, ..InferRequest::default() };
    let body = encode_request(&request, Encoding::Json).unwrap().body;
    let refused = cluster.refused(&[], &body, 400).await;
    assert!(refused.contains("shape [1, 2, 6], expected [batch, -1, 3]"), "{refused}");
    let large = InferRequest { inputs: sample(9000), ..InferRequest::default() };
    let large = encode_request(&large, Encoding::Json).unwrap().body;
    assert!(cluster.refused(&[], &large, 413).await.contains("100000"));
}
