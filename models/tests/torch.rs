//! TorchScript models: served with the feature `torch`, refused without.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::path::Path;

use support::{repository, start};

/// Makes the model `linear` a TorchScript one, whose file is `module`.
fn with_module(root: &Path, module: &[u8]) {
    let card = root.join("linear/model.toml");
    let text = fs::read_to_string(&card)
        .unwrap()
        .replace("onnxruntime_onnx", "pytorch_libtorch");
    fs::write(card, text).unwrap();
    for version in ["1", "2"] {
        fs::write(root.join("linear").join(version).join("model.pt"), module).unwrap();
    }
}

async fn refusal(root: &Path) -> String {
    let message = start(root, &[]).await.err().unwrap().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[cfg(not(feature = "torch"))]
#[tokio::test]
async fn a_build_without_libtorch_names_the_feature() {
    let repository = repository();
    with_module(repository.path(), b"");
    let message = refusal(repository.path()).await;
    assert!(
        message.contains("linear/model.toml: platform: ") && message.contains("--features torch"),
        "{message}"
    );
}

#[cfg(feature = "torch")]
mod with_libtorch {
    use hyper::StatusCode;
    use serde_json::json;
    use support::{Client, request};
    use tch::{CModule, Kind, Tensor};

    use super::*;

    /// A module that gives the first of `inputs` values and their sum.
    fn module(inputs: i64) -> Vec<u8> {
        let mut weights = vec![0.0_f32; 2 * inputs as usize];
        weights[0] = 1.0;
        weights
            .iter_mut()
            .skip(1)
            .step_by(2)
            .for_each(|weight| *weight = 1.0);
        let weights = Tensor::from_slice(&weights).view([inputs, 2]);
        let example = Tensor::zeros([2, inputs], (Kind::Float, tch::Device::Cpu));
        let traced = CModule::create_by_tracing("Linear", "forward", &[example], &mut |inputs| {
            vec![inputs[0].matmul(&weights)]
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.pt");
        traced.unwrap().save(&file).unwrap();
        fs::read(file).unwrap()
    }

    #[tokio::test]
    async fn a_module_is_served_like_any_model() {
        let repository = repository();
        with_module(repository.path(), &module(3));
        let instance = start(repository.path(), &[]).await.unwrap();
        let client = Client::new(&instance);
        let answer = client
            .infer(&request(&[[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]]))
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let data = json!([1.0, 6.0, 0.5, 0.75]);
        let output = json!({"name": "output", "datatype": "FP32", "shape": [2, 2], "data": data});
        assert_eq!(answer.json()["outputs"], json!([output]));
        assert_eq!(
            client.get("/v2/models/linear").await.json()["platform"],
            "pytorch_libtorch"
        );
    }

    #[tokio::test]
    async fn modules_that_do_not_fit_stop_the_start() {
        let repository = repository();
        with_module(repository.path(), b"no module");
        let message = refusal(repository.path()).await;
        assert!(
            message.contains("model.pt: not a TorchScript module"),
            "{message}"
        );
        with_module(repository.path(), &module(4));
        let message = refusal(repository.path()).await;
        assert!(message.contains("the first inference failed"), "{message}");
    }

    #[tokio::test]
    async fn outputs_are_held_against_the_model_card() {
        let repository = repository();
        let card = repository.path().join("linear/model.toml");
        let text = fs::read_to_string(&card)
            .unwrap()
            .replace("shape = [2]", "shape = [5]");
        fs::write(card, text).unwrap();
        with_module(repository.path(), &module(3));
        let message = refusal(repository.path()).await;
        assert!(
            message.contains("shape [1, 2], expected [1, 5]"),
            "{message}"
        );
    }
}
