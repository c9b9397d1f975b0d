//! Coding of models with several inputs and outputs: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parapet_config::repository::{CodeMetadata, Datatype, Platform};
use parapet_frontend::payload::Input;
use parapet_frontend::tenants::MixingDomain;
use parapet_frontend_core::PoolId;
use parapet_open_inference::{InferRequest, RequestedOutput, Tensor};
use serde_json::json;
use support::fixture::{Fixture, fixture, parameters};
use support::memory::{Memory, State, id};
use support::*;

const DEADLINE: Duration = Duration::from_secs(2);

/// `image` and `depth` are coded, `camera` is not; `scores` (twice the image) and `boxes` (the
/// depths' sum) are coded, `label` is not.
fn deployed() -> Tensors {
    let inputs = vec![
        spec("camera", Datatype::Int64, &[1]),
        spec("image", Datatype::Fp32, &[2, 2]),
        spec("depth", Datatype::Fp32, &[3]),
    ];
    let outputs = vec![
        spec("label", Datatype::Int64, &[1]),
        spec("boxes", Datatype::Fp32, &[1]),
        spec("scores", Datatype::Fp32, &[4]),
    ];
    (inputs, outputs)
}

/// The parity model's tensors have other names than the deployed model's, and another order.
fn parity() -> (Tensors, CodeMetadata) {
    let spec = |name, shape: &[usize]| spec(name, Datatype::Fp32, shape);
    let inputs = vec![spec("d", &[3]), spec("i", &[2, 2])];
    let outputs = vec![spec("s", &[4]), spec("b", &[1])];
    let mut code = CodeMetadata::new("scene", 0, sum(2, 1));
    code.inputs = ["depth", "image"].map(str::to_owned).to_vec();
    code.outputs = ["scores", "boxes"].map(str::to_owned).to_vec();
    ((inputs, outputs), code)
}

fn repository(change: impl FnOnce(&mut Tensors, &mut CodeMetadata)) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let add = |name, tensors, code| {
        add_entry(root.path(), name, Platform::OnnxRuntime, tensors, code);
    };
    add("scene", deployed(), None);
    let (mut tensors, mut code) = parity();
    change(&mut tensors, &mut code);
    add("scene-parity", tensors, Some(code));
    root
}

fn text(root: &Path) -> String {
    let strategy = "kind = \"coded\"\nencoder = \"sum\"\nk = 2\nhold_back = { fixed_ms = 30 }\n\
         [[models.strategy.parity]]\nmodel = \"scene-parity\"\ninstances = [\"127.0.0.1:7100\"]\n";
    strategy_toml(root, &addresses(2, 7000), strategy).replace("\"linear\"", "\"scene\"")
}

fn values(input: &Input, name: &str) -> Vec<f32> {
    let mut tensors = input.tensors.iter();
    let found = tensors.find(|tensor| tensor.name == name).unwrap();
    found.f32s().unwrap()
}

fn fp32(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(name, [&[1], shape].concat(), values).unwrap()
}

fn int64(name: &str, value: i64) -> Tensor {
    let data = value.to_le_bytes().to_vec().into();
    Tensor::new(name, Datatype::Int64, vec![1, 1], data).unwrap()
}

fn scores(image: &[f32]) -> Vec<f32> {
    image.iter().map(|value| 2.0 * value).collect()
}

fn infer(pool: PoolId, input: &Input) -> Vec<Tensor> {
    let names = if pool == PoolId::DEPLOYED {
        ["image", "depth", "scores", "boxes"]
    } else {
        ["i", "d", "s", "b"]
    };
    let sum: f32 = values(input, names[1]).iter().sum();
    let scores = fp32(names[2], &[4], &scores(&values(input, names[0])));
    let boxes = fp32(names[3], &[1], &[sum]);
    match pool {
        PoolId::DEPLOYED => vec![int64("label", 7), boxes, scores],
        _ => {
            let given = input.tensors.len();
            // A parity model hears of no input that is not coded.
            assert_eq!(given, 2);
            vec![scores, boxes]
        }
    }
}

async fn served() -> Fixture {
    let root = repository(|_, _| {});
    let text = text(root.path());
    fixture(root, &text, Memory::of(&[2, 1], infer)).await
}

fn request(sample: f32, outputs: &[&str]) -> InferRequest {
    let image = [sample, 1.0, 2.0, 3.0];
    let depth = [sample, 10.0, 20.0];
    let named = |name: &&str| RequestedOutput {
        name: (*name).to_owned(),
        binary_data: None,
        classes: None,
    };
    InferRequest {
        inputs: vec![
            fp32("depth", &[3], &depth),
            int64("camera", 3),
            fp32("image", &[2, 2], &image),
        ],
        outputs: outputs.iter().map(named).collect(),
        ..InferRequest::default()
    }
}

/// Asks two at the same time, the first of which gets no answer from its instance; the names and
/// values of the first one's outputs, and its provenance.
async fn late(fixture: &Fixture, outputs: &[&str]) -> (Vec<String>, Vec<Vec<f32>>, &'static str) {
    fixture.memory.set(id(0, 0), State::Frozen);
    let ask = |sample| {
        let (model, mut request) = (Arc::clone(&fixture.model), request(sample, outputs));
        let timeout = u64::try_from(DEADLINE.as_micros()).unwrap();
        request.parameters = parameters(&[("timeout", json!(timeout))]);
        tokio::spawn(async move { model.infer(MixingDomain::SHARED, request).await })
    };
    let (first, second) = (ask(1.0), ask(5.0));
    assert_eq!(second.await.unwrap().unwrap().1.kind, "exact");
    let (response, provenance) = first.await.unwrap().unwrap();
    let outputs = response.outputs.iter();
    let outputs = outputs.map(|tensor| (tensor.name.clone(), tensor.f32s().unwrap_or_default()));
    let (names, values) = outputs.unzip();
    (names, values, provenance.kind)
}

#[tokio::test(start_paused = true)]
async fn the_outputs_that_the_code_names_are_reconstructed() {
    let (names, values, kind) = late(&served().await, &["scores", "boxes"]).await;
    assert_eq!(names, ["boxes", "scores"]);
    assert_eq!(kind, "reconstructed");
    assert_close(&values[0], &[31.0]);
    assert_close(&values[1], &[2.0, 2.0, 4.0, 6.0]);
}

#[tokio::test(start_paused = true)]
async fn one_of_them_can_be_asked_for() {
    let (names, values, kind) = late(&served().await, &["boxes"]).await;
    assert_eq!((names.join(" ").as_str(), kind), ("boxes", "reconstructed"));
    assert_close(&values[0], &[31.0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_an_output_that_is_not_coded_is_answered_by_the_deployed_model_alone() {
    for outputs in [&["label", "scores"][..], &[]] {
        // By another instance, once a health check finds the frozen one down.
        let (names, _, kind) = late(&served().await, outputs).await;
        assert_eq!((names[0].as_str(), kind), ("label", "exact"), "{outputs:?}");
    }
}

#[test]
fn a_parity_model_that_does_not_fit_is_refused_by_name() {
    type Change = fn(&mut Tensors, &mut CodeMetadata);
    let cases: [(Change, &[&str]); 4] = [
        (
            |_, code| code.inputs[0] = "lidar".to_owned(),
            &["code.inputs", "\"lidar\"", "deployed model's inputs"],
        ),
        (
            |(inputs, _), _| inputs[0].shape = vec![4].into(),
            &["\"d\"", "is [4], not [3]", "\"depth\""],
        ),
        (|_, code| code.outputs[1] = "label".to_owned(), &["\"b\"", "\"label\"", "FP32"]),
        (|_, code| code.inputs.clear(), &["has 2 inputs, the deployed model 3", "code.inputs"]),
    ];
    for (change, expected) in cases {
        let root = repository(change);
        refused(&text(root.path()), expected);
    }
}

#[test]
fn metadata_with_impossible_names_is_refused_when_it_is_written() {
    let root = tempfile::tempdir().unwrap();
    for names in [&["image"][..], &["image", "image"]] {
        let (tensors, mut code) = parity();
        code.inputs = names.iter().map(|name| (*name).to_owned()).collect();
        let model = entry("p", Platform::OnnxRuntime, tensors, Some(code));
        let error = model.save(root.path()).unwrap_err().to_string();
        assert!(error.contains("code.inputs"), "{error}");
    }
}
