//! Queries with lengths of their own: grouped by padded length, and stacked with their lengths.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::sync::Arc;

use parapet_config::repository::{CodeMetadata, Datatype, Platform, Shape, TensorSpec};
use parapet_encoder::{Code, CodeSpec, EncoderKind, Padding};
use parapet_frontend::payload::Input;
use parapet_frontend::tenants::MixingDomain;
use parapet_frontend_core::PoolId;
use parapet_open_inference::{InferRequest, InferResponse, Tensor};
use serde_json::json;
use support::fixture::{Fixture, HOLD_BACK, fixture, parameters};
use support::memory::{Memory, SERVICE, State, output};
use support::*;
use tokio::task::JoinHandle;

const K: usize = 2;
/// Steps that groups are padded to.
const PADDED: [usize; 2] = [4, 8];

fn free(name: &str, datatype: Datatype, axes: &[i64]) -> TensorSpec {
    let shape = Shape::try_from(axes.to_vec()).unwrap();
    TensorSpec { name: name.to_owned(), datatype, shape }
}

fn code() -> CodeMetadata {
    let spec = CodeSpec::new(EncoderKind::Stack, K, 1);
    let padding = Padding::new(PADDED.to_vec(), &Code::try_from(&spec).unwrap()).unwrap();
    CodeMetadata { padding: Some(padding), ..CodeMetadata::new("words", 0, spec) }
}

/// `words` sums its tokens, and says by how many there are of each parity; its parity model too.
fn repository(change: impl FnOnce(&mut Tensors, &mut CodeMetadata)) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let deployed = vec![free("tokens", Datatype::Int64, &[-1])];
    let scores = vec![spec("output", Datatype::Fp32, &[OUTPUTS])];
    add_entry(root.path(), "words", Platform::OnnxRuntime, (deployed, scores), None);
    let inputs = vec![
        free("stack", Datatype::Int64, &[K as i64, -1]),
        spec("lengths", Datatype::Int64, &[K]),
    ];
    let outputs = vec![spec("slots", Datatype::Fp32, &[K, OUTPUTS])];
    let (mut tensors, mut code) = ((inputs, outputs), code());
    change(&mut tensors, &mut code);
    add_entry(root.path(), "words-parity", Platform::OnnxRuntime, tensors, Some(code));
    root
}

fn text(root: &Path) -> String {
    let strategy = "kind = \"coded\"\nencoder = \"stack\"\nk = 2\nhold_back = { fixed_ms = 30 }\n\
         [[models.strategy.parity]]\nmodel = \"words-parity\"\ninstances = [\"127.0.0.1:7100\"]\n";
    strategy_toml(root, &addresses(3, 7000), strategy).replace("\"linear\"", "\"words\"")
}

fn int64s(tensor: &Tensor) -> Vec<i64> {
    assert_eq!(tensor.datatype, Datatype::Int64);
    tensor.data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

fn scores(tokens: &[i64]) -> Vec<f32> {
    let sum: i64 = tokens.iter().sum();
    (0..OUTPUTS).map(|output| sum as f32 + (output * tokens.len()) as f32).collect()
}

/// The parity model reads no further than the lengths say.
fn infer(pool: PoolId, input: &Input) -> Vec<Tensor> {
    let tokens = int64s(&input.tensors[0]);
    if pool == PoolId::DEPLOYED {
        let samples = tokens.chunks(input.tensors[0].shape[1]);
        return output(&samples.flat_map(scores).collect::<Vec<_>>());
    }
    let [stack, lengths] = input.tensors.as_slice() else { panic!("a stack and its lengths") };
    let &[rows, K, padded] = &stack.shape[..] else { panic!("{:?}", stack.shape) };
    assert_eq!((stack.name.as_str(), lengths.name.as_str()), ("stack", "lengths"));
    assert_eq!(lengths.shape, [rows, K]);
    let mut predictions = Vec::new();
    for (tokens, steps) in tokens.chunks(padded).zip(int64s(lengths)) {
        let (own, rest) = tokens.split_at(steps as usize);
        assert!(rest.iter().all(|&token| token == 0));
        let least = PADDED.into_iter().find(|&length| length >= own.len());
        assert_eq!(least, Some(padded), "{steps} steps");
        predictions.extend(scores(own));
    }
    vec![Tensor::from_f32("slots", [rows, K, OUTPUTS], &predictions).unwrap()]
}

async fn served() -> Fixture {
    let root = repository(|_, _| {});
    let text = text(root.path());
    fixture(root, &text, Memory::of(&[3, 1], infer)).await
}

/// Tokens of `rows` samples of so many steps.
fn tokens(rows: usize, steps: usize) -> Vec<i64> {
    (0..rows * steps).map(|at| (10 * steps + at) as i64).collect()
}

fn ask(fixture: &Fixture, rows: usize, steps: usize) -> JoinHandle<(InferResponse, &'static str)> {
    let model = Arc::clone(&fixture.model);
    let data: Vec<u8> = tokens(rows, steps).iter().flat_map(|id| id.to_le_bytes()).collect();
    let tensor = Tensor::new("tokens", Datatype::Int64, vec![rows, steps], data.into()).unwrap();
    let request = InferRequest {
        inputs: vec![tensor],
        parameters: parameters(&[("timeout", json!(10_000_000))]),
        ..InferRequest::default()
    };
    tokio::spawn(async move {
        let (response, provenance) = model.infer(MixingDomain::SHARED, request).await.unwrap();
        (response, provenance.kind)
    })
}

/// Kind of the answer, which must be right.
async fn kind(
    asked: JoinHandle<(InferResponse, &'static str)>,
    rows: usize,
    steps: usize,
) -> &'static str {
    let (response, kind) = asked.await.unwrap();
    let expected: Vec<f32> = tokens(rows, steps).chunks(steps).flat_map(scores).collect();
    assert_eq!(response.outputs[0].shape, [rows, OUTPUTS]);
    assert_close(&response.outputs[0].f32s().unwrap(), &expected);
    kind
}

/// Asks at once for samples of these lengths, all of which must be reconstructed.
async fn all_reconstructed(fixture: &Fixture, rows: usize, lengths: &[usize]) {
    let asked: Vec<_> = lengths.iter().map(|&steps| (steps, ask(fixture, rows, steps))).collect();
    for (steps, asked) in asked {
        assert_eq!(kind(asked, rows, steps).await, "reconstructed");
    }
}

fn freeze(fixture: &Fixture) {
    fixture.set_all((0..3).map(|index| (0, index)), State::Frozen);
}

#[tokio::test(start_paused = true)]
async fn queries_of_one_padded_length_share_a_group_and_others_do_not() {
    let fixture = served().await;
    freeze(&fixture);
    for (lengths, groups) in [([3, 4], 1), ([1, 4], 2), ([5, 8], 3)] {
        all_reconstructed(&fixture, 1, &lengths).await;
        assert_eq!(fixture.model.driver.stats().groups_encoded, groups);
    }
    // Each waits for one of its own length. The instances still hold what was asked before.
    fixture.set_all((0..3).map(|index| (0, index)), State::Well(4 * HOLD_BACK));
    tokio::time::sleep(8 * HOLD_BACK).await;
    all_reconstructed(&fixture, 1, &[2, 6, 3, 7]).await;
    assert_eq!(fixture.model.driver.stats().groups_encoded, 5);
}

#[tokio::test(start_paused = true)]
async fn batches_of_several_lengths_share_a_group() {
    let fixture = served().await;
    freeze(&fixture);
    all_reconstructed(&fixture, 3, &[5, 7]).await;
    assert_eq!(fixture.model.driver.stats().groups_encoded, 1);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_is_longer_than_all_padding_is_answered_by_the_deployed_model_alone() {
    let fixture = served().await;
    let service = State::Well(2 * HOLD_BACK);
    fixture.set_all((0..3).map(|index| (0, index)), service);
    for (steps, expected) in [(8, "reconstructed"), (9, "exact")] {
        let asked = [steps, steps].map(|steps| ask(&fixture, 1, steps));
        for asked in asked {
            assert_eq!(kind(asked, 1, steps).await, expected);
        }
        tokio::time::sleep(2 * HOLD_BACK + SERVICE).await;
    }
    let stats = fixture.model.driver.stats();
    assert_eq!((stats.groups_encoded, stats.uncoded), (1, 2));
}

#[test]
fn an_entry_that_does_not_fit_is_refused_by_name() {
    type Change = fn(&mut Tensors, &mut CodeMetadata);
    let cases: [(Change, &[&str]); 3] = [
        (
            |(inputs, _), _| inputs[0] = free("stack", Datatype::Int64, &[2, -1, 3]),
            &["\"stack\"", "[2, -1, 3], not [2, -1] as", "\"tokens\""],
        ),
        (
            |(inputs, _), _| inputs[0] = free("stack", Datatype::Int32, &[2, -1]),
            &["\"stack\"", "is not INT64"],
        ),
        (
            |(inputs, _), code| {
                code.padding = None;
                *inputs = vec![spec("stack", Datatype::Int64, &[2, 4])];
            },
            &["\"stack\"", "[2, 4], not [2, -1] as", "\"tokens\""],
        ),
    ];
    for (change, expected) in cases {
        let root = repository(change);
        refused(&text(root.path()), expected);
    }
}

#[test]
fn metadata_whose_padding_does_not_fit_its_tensors_is_refused_when_it_is_written() {
    type Change = fn(&mut Tensors);
    let cases: [Change; 6] = [
        |(inputs, _)| drop(inputs.pop()),
        |(inputs, _)| inputs[1] = spec("lengths", Datatype::Int32, &[K]),
        |(inputs, _)| inputs[1] = spec("lengths", Datatype::Int64, &[K + 1]),
        |(inputs, _)| inputs[0] = spec("stack", Datatype::Int64, &[K, 4]),
        |(inputs, _)| inputs[0] = free("stack", Datatype::Bytes, &[K as i64, -1]),
        |(_, outputs)| outputs[0] = free("slots", Datatype::Fp32, &[K as i64, -1]),
    ];
    let root = tempfile::tempdir().unwrap();
    for change in cases {
        let inputs = vec![
            free("stack", Datatype::Int64, &[K as i64, -1]),
            spec("lengths", Datatype::Int64, &[K]),
        ];
        let mut tensors = (inputs, vec![spec("slots", Datatype::Fp32, &[K, OUTPUTS])]);
        change(&mut tensors);
        let model = entry("p", Platform::OnnxRuntime, tensors, Some(code()));
        let error = model.save(root.path()).unwrap_err().to_string();
        let fix = "give an input of shape [2, -1, ..] (2, 1, -1, .. too), one of INT64 [2] for";
        assert!(error.contains("code.padding: [4, 8]") && error.contains(fix), "{error}");
    }
}
