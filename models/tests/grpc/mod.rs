//! The instance over gRPC.

use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parapet_models::Instance;
use parapet_open_inference::grpc::message::{
    ModelConfigRequest, ModelInferRequest, ModelMetadataRequest, ModelReadyRequest,
    ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
};
use parapet_open_inference::grpc::{
    Form, InferenceClient, read_response, write_request, write_response,
};
use parapet_open_inference::{Datatype, InferRequest, InferResponse, Tensor};
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use super::datatypes::{compare, identity};
use super::support::{repository, start, start_faulty};

const GRPC: [&str; 2] = ["--grpc-listen", "127.0.0.1:0"];

async fn connect(instance: &Instance) -> InferenceClient<Channel> {
    let address = instance.grpc_address.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    InferenceClient::new(endpoint.connect().await.unwrap())
}

/// A client that leaves the deadline to the server; tonic's own channel keeps it, too, and ends
/// the request itself.
fn without_a_clock(
    instance: &Instance,
) -> InferenceClient<Client<HttpConnector, tonic::body::Body>> {
    let mut http = Client::builder(TokioExecutor::new());
    let http = http.http2_only(true).build_http();
    let origin = format!("http://{}", instance.grpc_address.unwrap());
    InferenceClient::with_origin(http, origin.parse().unwrap())
}

fn request(values: &[f32; 3]) -> ModelInferRequest {
    let input = Tensor::from_f32("input", [1, 3], values).unwrap();
    let request =
        InferRequest { id: Some("mine".into()), inputs: vec![input], ..InferRequest::default() };
    write_request("linear", None, &request)
}

#[tokio::test]
async fn health_metadata_and_inference() {
    let repository = repository();
    let flags = [&["linear@1"][..], &GRPC].concat();
    let instance = start(repository.path(), &flags).await.unwrap();
    let mut client = connect(&instance).await;
    let live = client.server_live(ServerLiveRequest {}).await.unwrap();
    let ready = client.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(live.into_inner().live && ready.into_inner().ready);
    for (name, version, ready) in
        [("linear", "", true), ("linear", "1", true), ("linear", "9", false), ("x", "", false)]
    {
        let asked = ModelReadyRequest { name: name.into(), version: version.into() };
        let told = client.model_ready(asked).await.unwrap().into_inner();
        assert_eq!(told.ready, ready, "{name} {version}");
    }
    let server = client.server_metadata(ServerMetadataRequest {}).await;
    assert_eq!(server.unwrap().into_inner().name, "parapet-instance");
    let asked = ModelMetadataRequest { name: "linear".into(), version: String::new() };
    let model = client.model_metadata(asked).await.unwrap().into_inner();
    assert_eq!(model.versions, ["1"]);
    assert_eq!(model.inputs[0].shape, [-1, 3]);
    let asked = ModelConfigRequest { name: "linear".into(), version: String::new() };
    let config = client.model_config(asked).await.unwrap().into_inner().config.unwrap();
    assert_eq!((config.max_batch_size, &config.input[0].dims), (8, &vec![3]));

    let answer = client.model_infer(request(&[1.0, 2.0, 3.0])).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.id, "mine");
    assert_eq!(answer.raw_output_contents.len(), 1);
    let outputs = read_response(answer).unwrap().outputs;
    assert_eq!(outputs[0].f32s().unwrap(), [1.0, 6.0]);
}

/// Also as large as HTTP/2's first window several times over, and compressed.
#[tokio::test]
async fn both_forms_and_compression_pass_every_datatype() {
    let (instance, inputs, _repository) = identity(|_| true, &GRPC).await;
    let request = InferRequest { inputs: inputs.clone(), ..InferRequest::default() };
    let request = write_request("identity", None, &request);
    let [gzip, deflate] = [CompressionEncoding::Gzip, CompressionEncoding::Deflate];
    for encoding in [None, Some(gzip), Some(deflate)] {
        let mut client = connect(&instance).await;
        if let Some(encoding) = encoding {
            client = client.send_compressed(encoding);
        }
        let answer = client.model_infer(request.clone()).await.unwrap();
        let outputs = read_response(answer.into_inner()).unwrap().outputs;
        compare(&outputs, &inputs);
    }

    let typed = |datatype| !matches!(datatype, Datatype::Fp16 | Datatype::Bf16);
    let (instance, inputs, _repository) = identity(typed, &GRPC).await;
    let mut client = connect(&instance).await;
    let response = InferResponse { outputs: inputs.clone(), ..InferResponse::default() };
    let message = ModelInferRequest {
        model_name: "identity".into(),
        inputs: write_response(&response, Form::Typed).outputs,
        ..ModelInferRequest::default()
    };
    let answer = client.model_infer(message).await.unwrap().into_inner();
    let raw = answer.raw_output_contents.len();
    assert_eq!(raw, 0, "typed contents are answered with typed contents");
    compare(&read_response(answer).unwrap().outputs, &inputs);
}

#[tokio::test]
async fn mistakes_have_their_codes() {
    let repository = repository();
    let flags = [&["linear", "--max-body-bytes", "2000"][..], &GRPC].concat();
    let instance = start(repository.path(), &flags).await.unwrap();
    let mut client = connect(&instance).await;
    let good = || request(&[1.0, 2.0, 3.0]);
    let with = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut message = good();
        change(&mut message);
        message
    };
    let other = with(&|message| message.model_name = "other".into());
    let version = with(&|message| message.model_version = "9".into());
    let wrong_shape = with(&|message| message.inputs[0].shape = vec![3]);
    let wrong_size = with(&|message| message.inputs[0].shape = vec![2, 3]);
    let large = with(&|message| message.raw_input_contents[0] = vec![0; 3000].into());
    for (message, code, named) in [
        (other, Code::NotFound, "unknown model"),
        (version, Code::NotFound, "no version"),
        (wrong_shape, Code::InvalidArgument, "expected [batch, 3]"),
        (wrong_size, Code::InvalidArgument, "takes 24 bytes, got 12"),
        (large, Code::OutOfRange, "limit is: 2000"),
    ] {
        let refused = client.model_infer(message).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(named), "{refused}");
    }
    let still = client.model_infer(good()).await;
    assert!(still.is_ok(), "and it still serves");
}

#[tokio::test]
async fn a_clients_deadline_counts_and_draining_refuses() {
    let repository = repository();
    let slow = "seed = 1\nservice_time = { distribution = \"constant\", ms = 60000.0 }";
    let flags = [&GRPC[..], &["--drain-grace-ms", "50"]].concat();
    let instance = start_faulty(repository.path(), slow, &flags).await;
    let mut client = connect(&instance).await;
    let mut message = Request::new(request(&[1.0, 2.0, 3.0]));
    let timeout = "20m".parse().unwrap();
    message.metadata_mut().insert("grpc-timeout", timeout);
    let late = without_a_clock(&instance).model_infer(message).await;
    let late = late.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(late.message(), "no prediction within 20ms");

    let stuck = {
        let mut client = client.clone();
        tokio::spawn(async move { client.model_infer(request(&[1.0, 2.0, 3.0])).await })
    };
    let scraper = super::support::Client::new(&instance);
    let in_flight = "requests_in_flight{model=\"linear\"} 1";
    while !scraper.get("/metrics").await.text().contains(in_flight) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(scraper);
    let report = instance.shut_down().await;
    assert_eq!(report.aborted, 1, "the one that is stuck: {report:?}");
    assert!(stuck.await.unwrap().is_err());
    let live = client.server_live(ServerLiveRequest {}).await;
    assert!(live.is_err(), "nothing listens any more");
}
