//! A frontend that is asked over gRPC, and asks its instances over gRPC.

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parapet_frontend::tenants::Key;
use parapet_open_inference::grpc::message::{
    InferTensorContents, ModelConfigRequest, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelReadyRequest, ServerLiveRequest, ServerMetadataRequest,
    ServerReadyRequest,
};
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

use super::*;

/// Two replicas and a parity instance, all of them over gRPC.
async fn start() -> (Cluster, InferenceClient<Channel>) {
    start_with("").await
}

/// The same with more in the configuration.
async fn start_with(more: &str) -> (Cluster, InferenceClient<Channel>) {
    let repository = repository();
    let flags = ["--grpc-listen", "127.0.0.1:0"];
    let instances = coded_instances(repository.path(), &flags).await;
    let at: Vec<_> = instances.iter().filter_map(|one| one.grpc_address).collect();
    let text = coded_toml(repository.path(), &at[..2], &at[2..], "max_rows = 8");
    let text = with_server(&with_scheme(&text, "grpc"), GRPC) + more;
    let cluster = Cluster::of(instances, repository, &text).await;
    let client = cluster.served.grpc_client().await;
    (cluster, client)
}

fn request(samples: &[f32]) -> ModelInferRequest {
    let mut request = infer_request(samples);
    request.id = Some("mine".into());
    write_request("linear", None, &request)
}

fn with(name: &'static str, value: &str) -> Request<ModelInferRequest> {
    let mut asked = Request::new(request(&SAMPLES));
    asked.metadata_mut().insert(name, value.parse().unwrap());
    asked
}

fn ready(name: &str, version: &str) -> ModelReadyRequest {
    let (name, version) = (name.into(), version.into());
    ModelReadyRequest { name, version }
}

fn config_of(name: &str, version: &str) -> ModelConfigRequest {
    let (name, version) = (name.into(), version.into());
    ModelConfigRequest { name, version }
}

fn metadata(name: &str, version: &str) -> ModelMetadataRequest {
    let (name, version) = (name.into(), version.into());
    ModelMetadataRequest { name, version }
}

const SAMPLES: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 0.5, -1.0, 2.0, 0.0];

#[tokio::test]
async fn answers_with_provenance_in_the_form_of_the_question() {
    let (_cluster, mut client) = start().await;
    let expected = linear_all(&SAMPLES);
    let asked = with("x-request-id", "mine-7");
    let answer = client.model_infer(asked).await.unwrap();
    for (name, value) in [
        ("parapet-provenance", "exact"),
        ("parapet-confidence", "1.0000"),
        ("x-request-id", "mine-7"),
    ] {
        assert_eq!(answer.metadata().get(name).unwrap(), value);
    }
    let answer = answer.into_inner();
    assert_eq!(answer.id, "mine");
    assert_eq!(answer.model_version, "1");
    let confidence = &answer.parameters["confidence"];
    assert_eq!(confidence.double_param, Some(1.0));
    assert_eq!(confidence.string_param.as_deref(), Some("1.0"), "as KServe's clients read it");
    let response = read_response(answer).unwrap();
    assert_eq!(response.parameters["provenance"], "exact");
    assert_eq!(response.outputs[0].shape, [2, OUTPUTS]);
    assert_close(&response.outputs[0].f32s().unwrap(), &expected);

    let mut typed = request(&SAMPLES);
    typed.raw_input_contents.clear();
    typed.inputs[0].contents =
        Some(InferTensorContents { fp32_contents: SAMPLES.to_vec(), ..Default::default() });
    let answer = client.model_infer(typed).await.unwrap().into_inner();
    assert!(answer.raw_output_contents.is_empty());
    let contents = answer.outputs[0].contents.as_ref().unwrap();
    assert_close(&contents.fp32_contents, &expected);
}

#[tokio::test]
async fn keys_and_quotas_hold_over_grpc() {
    let key = Key::generate();
    let quota = "requests_per_second = 0.001\nburst = 1";
    let hash = key.hash();
    let tenant = format!("[[tenants]]\nname = \"a\"\nkey_sha256 = [\"{hash}\"]\n{quota}\n");
    let (_cluster, mut client) = start_with(&tenant).await;
    let health = client.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(health.into_inner().ready, "health needs none");
    let mut other = request(&SAMPLES);
    other.model_name = "other".into();
    let wrong_key = with("authorization", "Bearer wrong");
    for refused in [
        client.model_infer(request(&SAMPLES)).await.err(),
        client.model_infer(other).await.err(),
        client.model_infer(wrong_key).await.err(),
        client.server_metadata(ServerMetadataRequest {}).await.err(),
        client.model_metadata(metadata("linear", "")).await.err(),
        client.model_ready(ready("linear", "")).await.err(),
        client.model_config(config_of("linear", "")).await.err(),
    ] {
        assert_eq!(refused.unwrap().code(), Code::Unauthenticated);
    }
    let asked = || with("authorization", &format!("Bearer {}", key.text()));
    assert!(client.model_infer(asked()).await.is_ok());
    let refused = client.model_infer(asked()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
}

#[tokio::test]
async fn says_what_it_serves() {
    let (_cluster, mut client) = start().await;
    let live = client.server_live(ServerLiveRequest {}).await.unwrap();
    assert!(live.into_inner().live);
    let is_ready = client.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(is_ready.into_inner().ready);
    let server = client.server_metadata(ServerMetadataRequest {}).await;
    let server = server.unwrap().into_inner();
    assert_eq!(server.name, "parapet");
    assert_eq!(server.extensions, ["binary_tensor_data"]);
    for (name, version, is_ready) in
        [("linear", "", true), ("linear", "2", false), ("other", "", false)]
    {
        let answer = client.model_ready(ready(name, version)).await.unwrap();
        assert_eq!(answer.into_inner().ready, is_ready, "{name} {version}");
    }
    let model = client.model_metadata(metadata("linear", "1")).await;
    let model = model.unwrap().into_inner();
    assert_eq!(model.platform, "onnxruntime_onnx");
    assert_eq!(model.outputs[0].datatype, "FP32");
    let unknown = client.model_metadata(metadata("other", "1")).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    let unknown = client.model_config(config_of("other", "1")).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn configuration_of_a_model_is_that_of_rest() {
    let (cluster, mut client) = start().await;
    let config = client.model_config(config_of("linear", "1")).await.unwrap().into_inner().config;
    let config = config.unwrap();
    let (input, output) = (&config.input[0], &config.output[0]);
    assert_eq!((config.max_batch_size, input.data_type, output.data_type), (8, 11, 11));
    assert_eq!((&input.dims, &output.dims), (&vec![INPUTS as i64], &vec![OUTPUTS as i64]));
    let rest = get(cluster.address, "/v2/models/linear/config").await.json();
    assert_eq!(serde_json::to_value(&config).unwrap(), rest);
}

#[tokio::test]
async fn mistakes_and_deadlines_have_their_codes() {
    let (cluster, mut client) = start().await;
    let changed = |change: fn(&mut ModelInferRequest)| {
        let mut message = request(&SAMPLES);
        change(&mut message);
        message
    };
    let mut nan = SAMPLES;
    nan[0] = f32::NAN;
    let other_model = changed(|message| message.model_name = "other".into());
    let other_version = changed(|message| message.model_version = "9".into());
    let flat = changed(|message| message.inputs[0].shape = vec![8]);
    let long = changed(|message| message.raw_input_contents[0] = vec![0; 200_000].into());
    for (message, code, named) in [
        (other_model, Code::NotFound, "no model \"other\""),
        (other_version, Code::NotFound, "no version \"9\""),
        (flat, Code::InvalidArgument, "expected [batch, 4]"),
        (request(&nan), Code::InvalidArgument, "NaN"),
        (long, Code::OutOfRange, "limit is: 100000"),
    ] {
        let refused = client.model_infer(message).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(named), "{refused}");
    }
    // tonic's own channel keeps the deadline, too, and would end the request itself.
    let http =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http::<tonic::body::Body>();
    let origin = format!("http://{}", cluster.served.grpc.unwrap());
    let mut without_a_clock = InferenceClient::with_origin(http, origin.parse().unwrap());
    let no_time = with("grpc-timeout", "0m");
    let late = without_a_clock.model_infer(no_time).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    let class = client.model_infer(with("parapet-class", "vip")).await;
    assert_eq!(class.unwrap_err().code(), Code::InvalidArgument);
    // And it still serves.
    assert!(client.model_infer(request(&SAMPLES)).await.is_ok());
}

/// `ModelStreamInferResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StreamResponse {
    #[prost(string, tag = "1")]
    pub(super) error_message: String,
    #[prost(message, optional, tag = "2")]
    pub(super) infer_response: Option<ModelInferResponse>,
}

/// Calls a method of the service with a stream of messages that stays open.
pub(super) async fn stream_of(
    cluster: &Cluster,
    method: &str,
    messages: Vec<ModelInferRequest>,
) -> Result<tonic::Streaming<StreamResponse>, tonic::Status> {
    use futures::StreamExt as _;
    let mut grpc = tonic::client::Grpc::new(cluster.served.grpc_channel().await);
    grpc.ready().await.unwrap();
    let path = format!("/inference.GRPCInferenceService/{method}");
    let codec = ProstCodec::<ModelInferRequest, StreamResponse>::default();
    let messages = futures::stream::iter(messages).chain(futures::stream::pending());
    let asked = grpc.streaming(Request::new(messages), path.parse().unwrap(), codec);
    asked.await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn each_request_of_a_stream_is_answered_while_the_stream_stays_open() {
    let (cluster, _client) = start().await;
    let mut unknown = request(&SAMPLES);
    unknown.model_name = "other".into();
    let messages = vec![request(&SAMPLES), unknown, request(&SAMPLES)];
    let mut answers = stream_of(&cluster, "ModelStreamInfer", messages).await.unwrap();
    for is_known in [true, false, true] {
        let answer = answers.message().await.unwrap().unwrap();
        let Some(response) = answer.infer_response.filter(|_| is_known) else {
            let said = answer.error_message;
            assert!(said.contains("no model \"other\""), "{said}");
            continue;
        };
        let given = &response.parameters["provenance"];
        assert_eq!(given.string_param.as_deref(), Some("exact"));
        let response = read_response(response).unwrap();
        assert_eq!(response.id.as_deref(), Some("mine"));
        assert_eq!(response.outputs[0].shape, [2, 3]);
    }
}

#[tokio::test]
async fn reflection_names_every_service_and_describes_its_methods() {
    use futures::stream;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

    let (cluster, _client) = start().await;
    let service = "inference.GRPCInferenceService";
    let asked = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol(service.to_owned()),
    ];
    let asked = asked.map(|asked| ServerReflectionRequest {
        message_request: Some(asked),
        ..ServerReflectionRequest::default()
    });
    let mut client = ServerReflectionClient::new(cluster.served.grpc_channel().await);
    let answers = client.server_reflection_info(stream::iter(asked)).await.unwrap();
    let mut answers = answers.into_inner();
    let listed = answers.message().await.unwrap().and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(listed)) = listed else {
        panic!("{listed:?}");
    };
    let names: Vec<&str> = listed.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&service) && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let file: ServerReflectionResponse = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::FileDescriptorResponse(file)) = file.message_response else {
        panic!("{file:?}");
    };
    let file = file.file_descriptor_proto.concat();
    for method in ["ServerLive", "ModelMetadata", "ModelInfer", "ModelStreamInfer"] {
        let is_there = file.windows(method.len()).any(|window| window == method.as_bytes());
        assert!(is_there, "{method} is not described");
    }
}

/// A client that keeps its stream open waits for its first answer.
#[tokio::test]
async fn a_method_that_is_not_served_is_refused_at_once() {
    let (cluster, _client) = start().await;
    let refused = stream_of(&cluster, "RepositoryIndex", Vec::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("there are ServerLive"), "{refused}");
}

#[tokio::test]
async fn health_is_that_of_the_frontend_and_names_no_model() {
    let (cluster, _client) = start().await;
    let mut client = HealthClient::new(cluster.served.grpc_channel().await);
    for service in ["", "inference.GRPCInferenceService"] {
        let service = service.to_owned();
        let health = client.check(HealthCheckRequest { service }).await.unwrap();
        assert_eq!(health.into_inner().status(), ServingStatus::Serving);
    }
    // Without a key a model that is there is not told from one that is not.
    for service in ["linear", "other"].map(str::to_owned) {
        let unknown = client.check(HealthCheckRequest { service }).await;
        assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
    }
    let watched = client.watch(HealthCheckRequest::default()).await;
    assert_eq!(watched.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn both_listeners_drain() {
    let (cluster, mut client) = start().await;
    assert!(client.model_infer(request(&SAMPLES)).await.is_ok());
    let address = cluster.served.grpc.unwrap();
    cluster.served.stop().await;
    assert!(client.server_live(ServerLiveRequest {}).await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
