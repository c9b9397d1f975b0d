//! The instance as its clients see it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod datatypes;
mod grpc;
mod support;

use hyper::{Method, StatusCode};
use parapet_open_inference::{Tensor, decode_response};
use serde_json::json;
use support::{Client, binary, repository, request, start};

#[tokio::test]
async fn json_in_and_out() {
    let repository = repository();
    let instance = start(repository.path(), &["linear@1"]).await.unwrap();
    let client = Client::new(&instance);
    let body = request(&[[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]]).replacen('{', r#"{"id":"mine","#, 1);
    let headers = [("x-request-id", "trace-7")];
    let answer = client.post("/v2/models/linear/infer", &headers, body.into()).await;
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
    let (body, length) = binary(vec![input], true);
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    let path = "/v2/models/linear/versions/2/infer";
    let answer = client.post(path, &headers, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    let response = decode_response(answer.body.clone(), answer.header_length()).unwrap();
    assert_eq!(response.model_version.as_deref(), Some("2"));
    assert_eq!(response.outputs[0].f32s().unwrap(), [2.0, 12.0]);
}

#[tokio::test]
async fn health_metadata_and_metrics() {
    let repository = repository();
    support::add_model(repository.path(), "other", &[1]);
    let models = ["linear@latest:3,linear@1,other"];
    let instance = start(repository.path(), &models).await.unwrap();
    let client = Client::new(&instance);
    let models = ["models/other/ready", "models/linear/versions/1/ready"];
    for path in ["health/live", "health/ready"].into_iter().chain(models) {
        let status = client.get(&format!("/v2/{path}")).await.status;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    let server = client.get("/v2").await.json();
    assert_eq!(server["extensions"], json!(["binary_tensor_data"]));
    let tensor = |name, len| json!({"name": name, "datatype": "FP32", "shape": [-1, len]});
    let metadata = json!({
        "name": "linear", "versions": ["1", "2"], "platform": "onnxruntime_onnx",
        "inputs": [tensor("input", 3)], "outputs": [tensor("output", 2)],
    });
    for path in ["/v2/models/linear", "/v2/models/linear/versions/1"] {
        assert_eq!(client.get(path).await.json(), metadata);
    }

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
async fn versions_of_the_policy_are_served_and_the_highest_by_default() {
    let repository = repository();
    support::add_model(repository.path(), "linear", &[3, 10]);
    for (policy, versions, others) in [
        ("linear", &["10"][..], ["3", "2"]),
        ("linear@latest:2", &["3", "10"], ["1", "2"]),
        ("linear@3+1,linear@2", &["1", "2", "3"], ["10", "4"]),
    ] {
        let instance = start(repository.path(), &[policy]).await.unwrap();
        let client = Client::new(&instance);
        let metadata = client.get("/v2/models/linear").await.json();
        assert_eq!(metadata["versions"], json!(versions), "{policy}");
        let infer = async |version: &str| {
            let path = format!("/v2/models/linear{version}/infer");
            client.post(&path, &[], request(&[[1.0, 0.0, 0.0]]).into()).await
        };
        for version in versions {
            let answer = infer(&format!("/versions/{version}")).await.json();
            assert_eq!(answer["model_version"], *version, "{policy}");
        }
        let answer = infer("").await.json();
        assert_eq!(answer["model_version"], *versions.last().unwrap(), "{policy}");
        for other in others {
            let status = infer(&format!("/versions/{other}")).await.status;
            assert_eq!(status, StatusCode::NOT_FOUND, "{policy}, {other}");
        }
    }
}

#[tokio::test]
async fn every_mistake_is_told_with_its_status() {
    let repository = repository();
    let flags = "linear --max-body-bytes 2000 --max-batch-size 4";
    let flags: Vec<&str> = flags.split(' ').collect();
    let instance = start(repository.path(), &flags).await.unwrap();
    let client = Client::new(&instance);
    let good = request(&[[1.0, 2.0, 3.0]]);
    let replaced = |from: &str, to: &str| good.replacen(from, to, 1);
    let more = r#"[{"name":"x","datatype":"FP32","shape":[1],"data":[1]},{"#;
    let output = "\"outputs\":[{\"name\":\"y\"}],\"inputs\"";
    let no_sample = replaced("[1,3]", "[0,3]").replace("[[1.0,2.0,3.0]]", "[]");
    for (body, named) in [
        ("{".to_owned(), "line 1 column 1"),
        (replaced("FP32", "FP64"), "datatype FP64, expected FP32"),
        (replaced("FP32", "FP"), "unknown datatype"),
        (replaced("[1,3]", "[3]"), "shape [3], expected [batch, 3]"),
        (replaced("[1,3]", "[1,4]"), "takes 4 elements, got 3"),
        (replaced("2.0", "1e39"), "element 1"),
        (replaced("\"input\"", "\"in\""), "input \"input\" is missing"),
        (replaced("[{", more), "input \"x\" is unknown"),
        (replaced("\"inputs\"", output), "output \"y\" is unknown"),
        (request(&[[0.0; 3]; 5]), "send 1 to 4"),
        (no_sample, "send 1 to 4"),
        (" ".repeat(2001), "larger than 2000 bytes"),
    ] {
        let status = if body.len() < 2000 { 400 } else { 413 };
        let answer = client.infer(&body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {}", answer.text());
        let error = answer.error();
        let told = error.contains(named) && !error.contains('\n');
        assert!(told, "{body}: {error}");
    }
    let still = client.infer(&good).await.status;
    assert_eq!(still, StatusCode::OK, "and it still serves");
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
        binary(vec![input], false)
    };
    let (good, length) = encoded(&[1.0, 2.0, 3.0]);
    let (nan, _) = encoded(&[1.0, f32::NAN, 3.0]);
    let longer = [&good[..], b"x"].concat().into();
    for (length, body, named) in [
        ("many", good.clone(), "not a number"),
        ("9999", good.clone(), "the body has only"),
        (&length, good.slice(..good.len() - 1), "only 11 binary bytes"),
        (&length, longer, "left over"),
        (&length, nan, "NaN"),
    ] {
        let headers = [("Inference-Header-Content-Length", length)];
        let answer = client.post("/v2/models/linear/infer", &headers, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.error().contains(named), "{}", answer.error());
    }
}

#[tokio::test]
async fn each_of_many_concurrent_requests_gets_its_own_answer() {
    let repository = repository();
    let flags = ["linear@1", "--max-batch-delay-us", "2000", "--count", "2"];
    let instance = start(repository.path(), &flags).await.unwrap();
    let client = Client::new(&instance);
    let one = |index: u16| {
        let client = client.clone();
        tokio::spawn(async move {
            let first = f32::from(index);
            let samples = [[first, 1.0, 1.0], [first, 2.0, 2.0]];
            let expected = json!([first, first + 2.0, first, first + 4.0]);
            assert_eq!(client.infer(&request(&samples)).await.data(), expected);
        })
    };
    for request in (0..64).map(one).collect::<Vec<_>>() {
        request.await.unwrap();
    }
}
