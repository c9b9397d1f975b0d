//! The instance as its clients see it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod datatypes;
mod grpc;
mod support;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use parapet_open_inference::{Encoding, InferRequest, Tensor, decode_response, encode_request};
use serde_json::json;
use support::{Client, repository, request, start};

#[tokio::test]
async fn json_in_and_out() {
    let repository = repository();
    let instance = start(repository.path(), &["linear@1"]).await.unwrap();
    let client = Client::new(&instance);
    let body = request(&[[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]]).replacen('{', r#"{"id":"mine","#, 1);
    let headers = [("x-request-id", "trace-7")];
    let answer = client
        .post("/v2/models/linear/infer", &headers, body.into())
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.headers["x-request-id"], "trace-7");
    let data = json!([1.0, 6.0, 0.5, 0.75]);
    let output = json!({"name": "output", "datatype": "FP32", "shape": [2, 2], "data": data});
    let expected =
        json!({"model_name": "linear", "model_version": "1", "id": "mine", "outputs": [output]});
    assert_eq!(answer.json(), expected);
}

#[tokio::test]
async fn binary_in_and_out() {
    let repository = repository();
    let instance = start(repository.path(), &[]).await.unwrap();
    let client = Client::new(&instance);
    let input = Tensor::from_f32("input", [1, 3], &[1.0, 2.0, 3.0]).unwrap();
    let mut request = InferRequest {
        inputs: vec![input],
        ..InferRequest::default()
    };
    request.ask_binary_outputs();
    let encoded = encode_request(&request, Encoding::Binary).unwrap();
    let length = encoded.header_length.unwrap().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let answer = client
        .post("/v2/models/linear/versions/2/infer", &headers, encoded.body)
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    let header_length = answer.header_length();
    let response = decode_response(answer.body, header_length).unwrap();
    assert_eq!(response.model_version.as_deref(), Some("2"));
    assert_eq!(response.outputs[0].f32s().unwrap(), [2.0, 12.0]);
}

#[tokio::test]
async fn health_metadata_and_metrics() {
    let repository = repository();
    support::add_model(repository.path(), "other", &[1]);
    let instance = start(repository.path(), &["linear@1,linear@2,other"])
        .await
        .unwrap();
    let client = Client::new(&instance);
    let paths = [
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/other/ready",
        "/v2/models/linear/versions/1/ready",
    ];
    for path in paths {
        assert_eq!(client.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(
        client.get("/v2").await.json()["extensions"],
        json!(["binary_tensor_data"])
    );
    let tensor = |name, len| json!({"name": name, "datatype": "FP32", "shape": [-1, len]});
    let metadata = json!({
        "name": "linear", "versions": ["1", "2"], "platform": "onnxruntime_onnx",
        "inputs": [tensor("input", 3)], "outputs": [tensor("output", 2)],
    });
    assert_eq!(client.get("/v2/models/linear").await.json(), metadata);
    assert_eq!(
        client.get("/v2/models/linear/versions/1").await.json(),
        metadata
    );

    client.infer(&request(&[[0.0; 3]])).await;
    client.infer("{}").await;
    let metrics = client.get("/metrics").await.text();
    for line in [
        r#"parapet_instance_requests_total{model="linear",outcome="ok"} 1"#,
        r#"parapet_instance_requests_total{model="linear",outcome="rejected"} 1"#,
        r#"parapet_instance_batch_rows_count{model="linear"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} not in\n{metrics}");
    }
}

#[tokio::test]
async fn every_mistake_is_told_with_its_status() {
    let repository = repository();
    let flags = [
        "linear",
        "--max-body-bytes",
        "2000",
        "--max-batch-size",
        "4",
    ];
    let instance = start(repository.path(), &flags).await.unwrap();
    let client = Client::new(&instance);
    let good = request(&[[1.0, 2.0, 3.0]]);
    let replaced = |from: &str, to: &str| good.replacen(from, to, 1);
    let cases = [
        ("{".to_owned(), 400, "line 1 column 1"),
        (
            replaced("FP32", "FP64"),
            400,
            "datatype FP64, expected FP32",
        ),
        (replaced("FP32", "FP"), 400, "unknown datatype"),
        (
            replaced("[1,3]", "[3]"),
            400,
            "shape [3], expected [batch, 3]",
        ),
        (replaced("[1,3]", "[1,4]"), 400, "takes 4 elements, got 3"),
        (replaced("2.0", "1e39"), 400, "element 1"),
        (
            replaced("\"input\"", "\"in\""),
            400,
            "input \"input\" is missing",
        ),
        (
            replaced(
                "[{",
                r#"[{"name":"x","datatype":"FP32","shape":[1],"data":[1]},{"#,
            ),
            400,
            "input \"x\" is unknown",
        ),
        (
            replaced("\"inputs\"", "\"outputs\":[{\"name\":\"y\"}],\"inputs\""),
            400,
            "output \"y\" is unknown",
        ),
        (request(&[[0.0; 3]; 5]), 400, "send 1 to 4"),
        (
            replaced("[1,3]", "[0,3]").replace("[[1.0,2.0,3.0]]", "[]"),
            400,
            "send 1 to 4",
        ),
        (
            format!("{good}{}", " ".repeat(2000)),
            413,
            "larger than 2000 bytes",
        ),
    ];
    for (body, status, named) in cases {
        let answer = client.infer(&body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {}", answer.text());
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(
            error.contains(named) && !error.contains('\n'),
            "{body}: {error}"
        );
    }
    assert_eq!(
        client.infer(&good).await.status,
        StatusCode::OK,
        "and it still serves"
    );
}

#[tokio::test]
async fn unknown_path_model_or_version_is_told_with_its_status() {
    let repository = repository();
    let instance = start(repository.path(), &["linear"]).await.unwrap();
    let client = Client::new(&instance);
    let good = request(&[[1.0, 2.0, 3.0]]);
    for (method, path, status) in [
        (Method::POST, "/v2/models/nonesuch/infer", 404),
        (Method::POST, "/v2/models/linear/versions/9/infer", 404),
        (Method::POST, "/v2/models/linear/versions/x/infer", 404),
        (Method::GET, "/v2/models/nonesuch", 404),
        (Method::GET, "/v3", 404),
        (Method::GET, "/v2/models/linear/infer", 405),
    ] {
        let answer = client.send(method, path, &[], good.clone().into()).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert!(answer.json()["error"].is_string(), "{path}");
    }
}

#[tokio::test]
async fn broken_binary_bodies_and_non_finite_inputs_are_refused() {
    let repository = repository();
    let instance = start(repository.path(), &[]).await.unwrap();
    let client = Client::new(&instance);
    let encoded = |values: &[f32; 3]| {
        let input = Tensor::from_f32("input", [1, 3], values).unwrap();
        let request = InferRequest {
            inputs: vec![input],
            ..InferRequest::default()
        };
        encode_request(&request, Encoding::Binary).unwrap()
    };
    let send = async |length: &str, body: Bytes| {
        let headers = [("Inference-Header-Content-Length", length)];
        let answer = client.post("/v2/models/linear/infer", &headers, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        answer.json()["error"].as_str().unwrap().to_owned()
    };
    let good = encoded(&[1.0, 2.0, 3.0]);
    let length = good.header_length.unwrap().to_string();
    assert!(
        send("many", good.body.clone())
            .await
            .contains("not a number")
    );
    assert!(
        send("9999", good.body.clone())
            .await
            .contains("the body has only")
    );
    assert!(
        send(&length, good.body.slice(..good.body.len() - 1))
            .await
            .contains("only 11 binary bytes")
    );
    assert!(
        send(&length, [&good.body[..], b"x"].concat().into())
            .await
            .contains("left over")
    );
    let nan = encoded(&[1.0, f32::NAN, 3.0]);
    assert!(send(&length, nan.body).await.contains("NaN"));
}

#[tokio::test]
async fn each_of_many_concurrent_requests_gets_its_own_answer() {
    let repository = repository();
    let flags = ["linear@1", "--max-batch-delay-us", "2000"];
    let instance = start(repository.path(), &flags).await.unwrap();
    let client = Client::new(&instance);
    let one = |index: u16| {
        let client = client.clone();
        tokio::spawn(async move {
            let first = f32::from(index);
            let answer = client
                .infer(&request(&[[first, 1.0, 1.0], [first, 2.0, 2.0]]))
                .await
                .json();
            assert_eq!(
                answer["outputs"][0]["data"],
                json!([first, first + 2.0, first, first + 4.0])
            );
        })
    };
    for request in (0..64).map(one).collect::<Vec<_>>() {
        request.await.unwrap();
    }
}
