//! A frontend that is asked over gRPC, and asks its instances over gRPC.

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parapet_frontend::tenants::Key;
use parapet_open_inference::grpc::message::{
    ModelInferRequest, ModelMetadataRequest, ModelReadyRequest, ParameterChoice, ServerLiveRequest,
    ServerMetadataRequest, ServerReadyRequest,
};
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use parapet_open_inference::{InferRequest, Tensor};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use super::support::{INPUTS, OUTPUTS, close, coded_toml, linear, repository};
use super::{Cluster, instance_with};

/// Two replicas and a parity instance, all of them over gRPC.
async fn start() -> (Cluster, InferenceClient<Channel>) {
    start_with("").await
}

/// The same with more in the configuration.
async fn start_with(more: &str) -> (Cluster, InferenceClient<Channel>) {
    let repository = repository();
    let mut instances = Vec::new();
    for model in ["linear", "linear", "linear-parity"] {
        instances
            .push(instance_with(repository.path(), model, &["--grpc-listen", "127.0.0.1:0"]).await);
    }
    let at: Vec<_> = instances
        .iter()
        .map(|instance| instance.grpc_address().unwrap())
        .collect();
    let cluster = Cluster::of(instances, repository, |root| {
        coded_toml(root, &at[..2], &at[2..], "max_rows = 8")
            .replace("[server]\n", "[server]\ngrpc_listen = \"127.0.0.1:0\"\n")
            .replace("instances = [\"", "instances = [\"grpc://")
            .replace(", \"127", ", \"grpc://127")
            + more
    })
    .await;
    let address = cluster.grpc_address.unwrap();
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    (cluster, InferenceClient::new(channel))
}

fn request(samples: &[f32]) -> ModelInferRequest {
    let input = Tensor::from_f32("input", vec![samples.len() / INPUTS, INPUTS], samples).unwrap();
    let request = InferRequest {
        id: Some("mine".into()),
        inputs: vec![input],
        ..InferRequest::default()
    };
    write_request("linear", None, &request)
}

const SAMPLES: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 0.5, -1.0, 2.0, 0.0];

#[tokio::test]
async fn answers_with_provenance_in_the_form_of_the_question() {
    let (_cluster, mut client) = start().await;
    let expected: Vec<f32> = SAMPLES.chunks(INPUTS).flat_map(linear).collect();
    let mut asked = Request::new(request(&SAMPLES));
    asked
        .metadata_mut()
        .insert("x-request-id", "mine-7".parse().unwrap());
    let answer = client.model_infer(asked).await.unwrap();
    let header = |name: &str| answer.metadata().get(name).unwrap().to_str().unwrap();
    assert_eq!(header("parapet-provenance"), "exact");
    assert_eq!(
        (header("parapet-confidence"), header("x-request-id")),
        ("1.0000", "mine-7")
    );
    let answer = answer.into_inner();
    assert_eq!(
        (answer.id.as_str(), answer.model_version.as_str()),
        ("mine", "1")
    );
    let confidence = &answer.parameters["confidence"].parameter_choice;
    assert_eq!(confidence, &Some(ParameterChoice::DoubleParam(1.0)));
    let response = read_response(answer).unwrap();
    assert_eq!(response.parameters["provenance"], "exact");
    assert_eq!(response.outputs[0].shape, [2, OUTPUTS]);
    assert!(close(&response.outputs[0].f32s().unwrap(), &expected));

    let mut typed = request(&SAMPLES);
    typed.raw_input_contents.clear();
    typed.inputs[0].contents = Some(parapet_open_inference::grpc::message::InferTensorContents {
        fp32_contents: SAMPLES.to_vec(),
        ..Default::default()
    });
    let answer = client.model_infer(typed).await.unwrap().into_inner();
    assert!(answer.raw_output_contents.is_empty());
    assert!(close(
        &answer.outputs[0].contents.as_ref().unwrap().fp32_contents,
        &expected
    ));
}

#[tokio::test]
async fn keys_and_quotas_hold_over_grpc() {
    let key = Key::generate();
    let quota = "requests_per_second = 0.001\nburst = 1";
    let tenant = format!(
        "[[tenants]]\nname = \"a\"\nkey_sha256 = [\"{}\"]\n{quota}\n",
        key.hash()
    );
    let (_cluster, mut client) = start_with(&tenant).await;
    let with_key = |authorization: &str| {
        let mut asked = Request::new(request(&SAMPLES));
        asked
            .metadata_mut()
            .insert("authorization", authorization.parse().unwrap());
        asked
    };
    assert!(
        client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready,
        "health needs none"
    );
    for refused in [
        client.model_infer(request(&SAMPLES)).await.unwrap_err(),
        client
            .model_infer(ModelInferRequest {
                model_name: "other".into(),
                ..request(&SAMPLES)
            })
            .await
            .unwrap_err(),
        client
            .model_infer(with_key("Bearer wrong"))
            .await
            .unwrap_err(),
        client
            .server_metadata(ServerMetadataRequest {})
            .await
            .unwrap_err(),
        client
            .model_metadata(ModelMetadataRequest {
                name: "linear".into(),
                version: String::new(),
            })
            .await
            .unwrap_err(),
        client
            .model_ready(ModelReadyRequest {
                name: "linear".into(),
                version: String::new(),
            })
            .await
            .unwrap_err(),
    ] {
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    }
    let bearer = format!("Bearer {}", key.text());
    assert!(client.model_infer(with_key(&bearer)).await.is_ok());
    let refused = client.model_infer(with_key(&bearer)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

#[tokio::test]
async fn says_what_it_serves() {
    let (_cluster, mut client) = start().await;
    assert!(
        client
            .server_live(ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner()
            .live
    );
    assert!(
        client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let server = client
        .server_metadata(ServerMetadataRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (server.name.as_str(), server.extensions),
        ("parapet", vec!["binary_tensor_data".to_owned()])
    );
    for (name, version, ready) in [
        ("linear", "", true),
        ("linear", "2", false),
        ("other", "", false),
    ] {
        let asked = ModelReadyRequest {
            name: name.into(),
            version: version.into(),
        };
        assert_eq!(
            client.model_ready(asked).await.unwrap().into_inner().ready,
            ready,
            "{name} {version}"
        );
    }
    let asked = |name: &str| ModelMetadataRequest {
        name: name.into(),
        version: "1".into(),
    };
    let model = client
        .model_metadata(asked("linear"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (model.platform.as_str(), model.outputs[0].datatype.as_str()),
        ("onnxruntime_onnx", "FP32")
    );
    assert_eq!(
        client
            .model_metadata(asked("other"))
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn mistakes_and_deadlines_have_their_codes() {
    let (cluster, mut client) = start().await;
    let good = || request(&SAMPLES);
    let mut nan = SAMPLES;
    nan[0] = f32::NAN;
    let mut wrong_shape = good();
    wrong_shape.inputs[0].shape = vec![8];
    let mut large = good();
    large.raw_input_contents[0] = vec![0; 200_000].into();
    for (message, code, named) in [
        (
            ModelInferRequest {
                model_name: "other".into(),
                ..good()
            },
            Code::NotFound,
            "no model \"other\"",
        ),
        (
            ModelInferRequest {
                model_version: "9".into(),
                ..good()
            },
            Code::NotFound,
            "no version \"9\"",
        ),
        (wrong_shape, Code::InvalidArgument, "takes [n, 4]"),
        (request(&nan), Code::InvalidArgument, "NaN"),
        (large, Code::OutOfRange, "limit is: 100000"),
    ] {
        let refused = client.model_infer(message).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(named), "{refused}");
    }
    let with = |name: &'static str, value: &str| {
        let mut asked = Request::new(good());
        asked.metadata_mut().insert(name, value.parse().unwrap());
        asked
    };
    // tonic's own channel keeps the deadline, too, and would end the request itself.
    let http = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<tonic::body::Body>();
    let origin = format!("http://{}", cluster.grpc_address.unwrap())
        .parse()
        .unwrap();
    let mut without_a_clock = InferenceClient::with_origin(http, origin);
    let late = without_a_clock
        .model_infer(with("grpc-timeout", "0m"))
        .await
        .unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let class = client
        .model_infer(with("parapet-class", "vip"))
        .await
        .unwrap_err();
    assert_eq!(class.code(), Code::InvalidArgument, "{class}");
    assert!(
        client.model_infer(good()).await.is_ok(),
        "and it still serves"
    );
}

#[tokio::test]
async fn both_listeners_drain() {
    let (mut cluster, mut client) = start().await;
    assert!(client.model_infer(request(&SAMPLES)).await.is_ok());
    cluster.shutdown.take().unwrap().send(()).unwrap();
    (&mut cluster.stopped).await.unwrap();
    assert!(client.server_live(ServerLiveRequest {}).await.is_err());
    assert!(
        tokio::net::TcpStream::connect(cluster.grpc_address.unwrap())
            .await
            .is_err()
    );
}
