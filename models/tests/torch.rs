//! TorchScript models: served with the feature `torch`, refused without.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::fs;
use std::path::Path;

use support::{repository, start};

/// Makes the model `linear` a TorchScript one, whose file is `module`.
fn with_module(root: &Path, module: &[u8]) {
    let card = root.join("linear/model.toml");
    let text = fs::read_to_string(&card).unwrap();
    fs::write(card, text.replace("onnxruntime_onnx", "pytorch_libtorch")).unwrap();
    for version in ["1", "2"] {
        fs::write(root.join("linear").join(version).join("model.pt"), module).unwrap();
    }
}

async fn refused(root: &Path, parts: &[&str]) {
    let message = start(root, &[]).await.err().unwrap().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    let told = parts.iter().all(|part| message.contains(part));
    assert!(told, "{message}");
}

#[cfg(not(feature = "torch"))]
#[tokio::test]
async fn a_build_without_libtorch_names_the_feature() {
    let repository = repository();
    with_module(repository.path(), b"");
    let parts = ["linear/model.toml: platform: ", "--features torch"];
    refused(repository.path(), &parts).await;
}

#[cfg(feature = "torch")]
mod with_libtorch {
    use serde_json::json;
    use support::{Client, request};
    use tch::{CModule, Kind, Tensor};

    use super::*;

    /// A module that gives the first of `inputs` values and their sum.
    fn module(inputs: i64) -> Vec<u8> {
        let first = (0..inputs).map(|input| f32::from(u8::from(input == 0)));
        let weights: Vec<f32> = first.flat_map(|first| [first, 1.0]).collect();
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
        let samples = [[1.0, 2.0, 3.0], [0.5, 0.25, 0.0]];
        let data = client.infer(&request(&samples)).await.data();
        assert_eq!(data, json!([1.0, 6.0, 0.5, 0.75]));
        let metadata = client.get("/v2/models/linear").await.json();
        assert_eq!(metadata["platform"], "pytorch_libtorch");
    }

    #[tokio::test]
    async fn modules_that_do_not_fit_stop_the_start() {
        let repository = repository();
        with_module(repository.path(), b"no module");
        refused(repository.path(), &["model.pt: not a TorchScript module"]).await;
        with_module(repository.path(), &module(4));
        refused(repository.path(), &["the warm-up failed"]).await;
    }

    #[tokio::test]
    async fn outputs_are_held_against_the_model_card() {
        let repository = repository();
        let card = repository.path().join("linear/model.toml");
        let text = fs::read_to_string(&card).unwrap();
        fs::write(card, text.replace("shape = [2]", "shape = [5]")).unwrap();
        with_module(repository.path(), &module(3));
        refused(repository.path(), &["shape [1, 2], expected [1, 5]"]).await;
    }
}
