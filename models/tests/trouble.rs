//! Overload, faults, drain, and start-ups that must fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use parapet_onnx::GraphBuilder;
use support::{Client, repository, request, start, start_faulty};
use tokio::net::TcpStream;

const SLOW: &str = "seed = 1\nservice_time = { distribution = \"constant\", ms = 300.0 }";

#[tokio::test]
async fn a_full_queue_answers_at_once_with_retry_after() {
    let repository = repository();
    let flags = ["--queue-capacity", "1", "--max-batch-size", "1"];
    let instance = start_faulty(repository.path(), SLOW, &flags).await;
    let client = Client::new(&instance);
    let one = || {
        let client = client.clone();
        tokio::spawn(async move { client.infer(&request(&[[0.0; 3]])).await })
    };
    let mut refused = 0;
    for answer in [one(), one(), one(), one()] {
        let answer = answer.await.unwrap();
        if answer.status == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.headers["retry-after"], "1");
            assert!(answer.text().contains("queue is full"));
            refused += 1;
        } else {
            assert_eq!(answer.status, StatusCode::OK);
        }
    }
    // One runs and one waits; whether the first had left the queue when the second came is a race.
    assert!((2..=3).contains(&refused), "{refused}");
}

#[tokio::test]
async fn a_late_prediction_is_a_timeout_and_the_instance_goes_on() {
    let repository = repository();
    let instance = start_faulty(repository.path(), SLOW, &["--request-timeout-ms", "50"]).await;
    let client = Client::new(&instance);
    let answer = client.infer(&request(&[[0.0; 3]])).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(client.get("/v2/health/ready").await.status, StatusCode::OK);
}

#[tokio::test]
async fn nobody_is_computed_for_longer_than_he_waits() {
    let repository = repository();
    let instance = start_faulty(repository.path(), SLOW, &[]).await;
    let client = Client::new(&instance);
    let ask = async |timeout_us: &str| {
        let headers = [("parapet-timeout-us", timeout_us)];
        let body = request(&[[0.0; 3]]).into();
        let answer = client.post("/v2/models/linear/infer", &headers, body);
        answer.await.status
    };
    assert_eq!(ask("50000").await, StatusCode::GATEWAY_TIMEOUT);
    for patient in ["30000000", "soon"] {
        assert_eq!(ask(patient).await, StatusCode::OK, "{patient}");
    }
}

#[tokio::test]
async fn injected_errors_are_the_servers_fault() {
    let repository = repository();
    let instance = start_faulty(repository.path(), "seed = 1\nerror_probability = 1.0", &[]).await;
    let answer = Client::new(&instance).infer(&request(&[[0.0; 3]])).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.error(), "injected fault");
}

#[tokio::test]
async fn shutting_down_answers_what_is_in_flight() {
    let repository = repository();
    let instance = start_faulty(repository.path(), SLOW, &[]).await;
    let (client, address) = (Client::new(&instance), instance.address);
    let start = Instant::now();
    let in_flight = tokio::spawn({
        let client = client.clone();
        async move { client.infer(&request(&[[0.0; 3]])).await }
    });
    let in_flight_line = r#"parapet_instance_requests_in_flight{model="linear"} 1"#;
    let in_flight_seen =
        async { while !client.get("/metrics").await.text().contains(in_flight_line) {} };
    tokio::time::timeout(Duration::from_secs(10), in_flight_seen).await.unwrap();
    let report = instance.shut_down().await;
    assert_eq!(report.aborted, 0);
    assert_eq!(in_flight.await.unwrap().status, StatusCode::OK);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_model_that_does_not_fit_stops_the_start() {
    let repository = repository();
    let folder = repository.path().join("linear");
    let good = fs::read_to_string(folder.join("model.toml")).unwrap();
    let error = async |flags: &[&str]| {
        let Err(error) = start(repository.path(), flags).await else {
            return "started".to_owned();
        };
        let error = error.to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let shape = "inputs[0].shape: [4] here, [3] after the batch axis";
    let datatype = "inputs[0].datatype: INT64 here, FP32 in the graph";
    let name = "outputs[0].name: the graph has no \"logits\"";
    let platform = "platform: \"tensorrt_plan\" is not served here; give onnxruntime_onnx or";
    for (from, to, named) in [
        ("shape = [3]", "shape = [4]", shape),
        ("\"FP32\"", "\"INT64\"", datatype),
        ("\"output\"", "\"logits\"", name),
        ("\"onnxruntime_onnx\"", "\"tensorrt_plan\"", platform),
    ] {
        fs::write(folder.join("model.toml"), good.replacen(from, to, 1)).unwrap();
        let error = error(&[]).await;
        assert!(error.contains(&format!("model.toml: {named}")), "{error}");
    }
    fs::write(folder.join("model.toml"), good).unwrap();
    assert!(error(&["nonesuch"]).await.contains("there is linear"));
    assert!(error(&["linear@1+7"]).await.contains("linear: no version 7, there is 1, 2"));
    fs::write(folder.join("2/model.onnx"), b"not a model").unwrap();
    let (corrupt, told) = (error(&[]).await, "2/model.onnx: not a model that ONNX Runtime can run");
    assert!(corrupt.contains(told), "{corrupt}");
}

#[tokio::test]
async fn a_provider_that_the_library_lacks_stops_the_start() {
    let repository = repository();
    for provider in ["cuda:1", "tensorrt:0", "openvino"] {
        let started = start(repository.path(), &["linear", "--provider", provider]).await;
        let error = started.err().unwrap().to_string();
        let named = format!("libonnxruntime.so: cannot run models with the provider {provider}: ");
        assert!(error.contains(&named) && !error.contains('\n'), "{error}");
        assert!(error.contains("--onnxruntime, or give --provider cpu"), "{error}");
    }
}

#[tokio::test]
async fn a_model_that_fails_the_warm_up_starts_only_without_it() {
    let repository = repository();
    let folder = repository.path().join("linear");
    let card = fs::read_to_string(folder.join("model.toml")).unwrap();
    fs::write(folder.join("model.toml"), card.replace("shape = [2]", "shape = [6]")).unwrap();
    // Two rows make one output: one row alone is an error.
    let file = GraphBuilder::new("input", &[3]).reshape(&[6]).finish("output").unwrap();
    fs::write(folder.join("2/model.onnx"), file).unwrap();
    let error = start(repository.path(), &[]).await.err().unwrap().to_string();
    assert!(error.starts_with("model linear, version 2: the warm-up failed: "), "{error}");
    assert!(error.ends_with("with --warm-up false") && !error.contains('\n'), "{error}");
    let instance = start(repository.path(), &["linear", "--warm-up", "false"]).await.unwrap();
    let ready = Client::new(&instance).get("/v2/health/ready").await.status;
    assert_eq!(ready, StatusCode::OK);
}

#[test]
fn mistake_in_a_model_file_is_named_once_in_one_line() {
    let repository = repository();
    let file = repository.path().join("linear/model.toml");
    fs::write(file, "platform = \"onnxruntime_onnx\"\n").unwrap();
    let instance = Command::new(env!("CARGO_BIN_EXE_parapet-instance"))
        .args("--listen 127.0.0.1:0 --model linear --repository".split(' '))
        .arg(repository.path())
        .output()
        .unwrap();
    let said = String::from_utf8(instance.stderr).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("parapet-instance: "), "{said}");
    assert_eq!(said.matches("missing field `name`").count(), 1, "{said}");
    assert_eq!(instance.status.code(), Some(2));
}
