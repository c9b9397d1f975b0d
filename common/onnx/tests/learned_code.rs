//! A code that is known in closed form: networks that add and subtract, for a linear model.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use parapet_config::repository::{
    CodeMetadata, Datatype, ModelRepository, ModelToml, Platform, TensorSpec,
};
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_onnx::learned_code::{LearnedCode, Sizes};
use parapet_onnx::runtime::OnnxRuntime;
use parapet_onnx::{GraphBuilder, linear_model};
use proptest::prelude::*;

const D: usize = 3;
const C: usize = 2;

fn runtime() -> OnnxRuntime {
    OnnxRuntime::load(None).unwrap()
}

/// A matrix of blocks of `size` x `size`: each a multiple of the identity.
fn blocks(size: usize, factors: &[&[f32]]) -> Vec<f32> {
    let mut weights = Vec::new();
    for row in factors {
        for line in 0..size {
            for factor in *row {
                weights.extend((0..size).map(|column| if column == line { *factor } else { 0.0 }));
            }
        }
    }
    weights
}

/// k = 2, r = 1: `P = X_1 + X_2`, and each prediction is the parity's less the other's.
fn sum_of_two() -> (Vec<u8>, Vec<u8>) {
    let encoder = linear_model(&[2 * D], &blocks(D, &[&[1.0, 1.0]]), &[0.0; D]).unwrap();
    let decoder = linear_model(
        &[3 * C],
        &blocks(C, &[&[0.0, -1.0, 1.0], &[-1.0, 0.0, 1.0]]),
        &[0.0; 2 * C],
    )
    .unwrap();
    (encoder, decoder)
}

/// k = 2, r = 2: `P_1 = X_1`, `P_2 = 10 X_2`.
fn copies_of_two() -> (Vec<u8>, Vec<u8>) {
    let encoder = linear_model(
        &[2 * D],
        &blocks(D, &[&[1.0, 0.0], &[0.0, 10.0]]),
        &[0.0; 2 * D],
    )
    .unwrap();
    let decoder = linear_model(
        &[4 * C],
        &blocks(C, &[&[0.0, 0.0, 1.0, 0.0], &[0.0, 0.0, 0.0, 0.1]]),
        &[0.0; 2 * C],
    );
    (encoder, decoder.unwrap())
}

fn code(
    r: usize,
    transform: OutputTransform,
    (encoder, decoder): (Vec<u8>, Vec<u8>),
) -> LearnedCode {
    let spec = CodeSpec {
        transform,
        ..CodeSpec::new(EncoderKind::Learned, 2, r)
    };
    let sizes = Sizes {
        spec: &spec,
        sample_len: D,
        output_len: C,
    };
    LearnedCode::from_onnx(&runtime(), sizes, Path::new("here"), (&encoder, &decoder)).unwrap()
}

/// Linear, sample by sample.
fn model(samples: &[f32]) -> Vec<f32> {
    samples
        .chunks(D)
        .flat_map(|x| [x[0] - 2.0 * x[1], 0.5 * x[2] + x[0]])
        .collect()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whole batches, whichever member is missing, whatever the scale of the domain.
    #[test]
    fn a_missing_prediction_is_had_back(
        batch in 1usize..5,
        values in proptest::collection::vec(-3.0f32..3.0, 2 * 5 * D),
        missing in 0usize..2,
        deviation in 0.25f32..4.0,
    ) {
        let code = code(
            1,
            OutputTransform::Standardised {
                mean: vec![0.0],
                deviation: vec![deviation],
            },
            sum_of_two(),
        );
        let (a, b) = values.split_at(5 * D);
        let queries = [&a[..batch * D], &b[..batch * D]];
        let mut parity = vec![f32::NAN; batch * D];
        code.encoder().encode(0, &queries, &mut parity).unwrap();
        let sum: Vec<f32> = queries[0]
            .iter()
            .zip(queries[1])
            .map(|(a, b)| a + b)
            .collect();
        prop_assert!(close(&parity, &sum));

        let (answers, of_parity) = (queries.map(model), model(&parity));
        let mut predictions = [Some(answers[0].as_slice()), Some(answers[1].as_slice())];
        predictions[missing] = None;
        let mut out = vec![f32::NAN; batch * C];
        code.decoder()
            .decode(&predictions, &[Some(&of_parity)], missing, &mut out)
            .unwrap();
        prop_assert!(
            close(&out, &answers[missing]),
            "{out:?}, {:?}",
            answers[missing]
        );
    }

    #[test]
    fn each_row_is_its_own_query(
        batch in 1usize..4,
        values in proptest::collection::vec(-3.0f32..3.0, 2 * 4 * D),
    ) {
        let code = code(2, OutputTransform::Raw, copies_of_two());
        let (a, b) = values.split_at(4 * D);
        let queries = [&a[..batch * D], &b[..batch * D]];
        let mut rows = [vec![0.0; batch * D], vec![0.0; batch * D]];
        for (row, parity) in rows.iter_mut().enumerate() {
            code.encoder().encode(row, &queries, parity).unwrap();
        }
        let tens: Vec<f32> = queries[1].iter().map(|value| 10.0 * value).collect();
        prop_assert!(close(&rows[0], queries[0]) && close(&rows[1], &tens));

        let answers = [model(&rows[0]), model(&rows[1])];
        let parity = [Some(answers[0].as_slice()), Some(answers[1].as_slice())];
        for (slot, query) in queries.iter().enumerate() {
            let mut out = vec![f32::NAN; batch * C];
            code.decoder()
                .decode(&[None, None], &parity, slot, &mut out)
                .unwrap();
            prop_assert!(close(&out, &model(query)), "{slot}");
        }
    }
}

#[test]
fn groups_that_do_not_fit_are_refused() {
    let code = code(1, OutputTransform::Raw, sum_of_two());
    let one: &[f32] = &[1.0; D];
    let mut parity = [0.0; D];
    assert!(
        code.encoder().encode(1, &[one, one], &mut parity).is_err(),
        "there is one row"
    );
    assert!(
        code.encoder().encode(0, &[one], &mut parity).is_err(),
        "there are two queries"
    );
    let answer: &[f32] = &[0.0; C];
    let mut out = [0.0; C];
    assert!(
        code.decoder()
            .decode(&[None, None], &[Some(answer)], 0, &mut out)
            .is_err(),
        "two are missing"
    );
    let odd: &[f32] = &[0.0; C + 1];
    let mut out = [0.0; C + 1];
    assert!(
        code.decoder()
            .decode(&[None, Some(odd)], &[Some(odd)], 0, &mut out)
            .is_err(),
        "half a sample"
    );
}

fn refused(encoder: &[u8], decoder: &[u8]) -> String {
    let spec = CodeSpec::new(EncoderKind::Learned, 2, 1);
    let sizes = Sizes {
        spec: &spec,
        sample_len: D,
        output_len: C,
    };
    let error = LearnedCode::from_onnx(&runtime(), sizes, Path::new("here"), (encoder, decoder))
        .unwrap_err();
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn networks_that_do_not_fit_are_refused_in_one_line() {
    let (encoder, decoder) = sum_of_two();
    let message = refused(&decoder, &decoder);
    assert!(
        message.contains("encoder.onnx: its output has 4 values") && message.contains("make it 3"),
        "{message}"
    );
    let short = linear_model(&[2 * D], &blocks(2 * D, &[&[1.0]]), &[0.0; 2 * D]).unwrap();
    let message = refused(&short, &decoder);
    assert!(
        message.contains("encoder.onnx: its output has 6 values") && message.contains("make it 3"),
        "{message}"
    );
    let narrow = linear_model(&[2 * C], &blocks(2 * C, &[&[1.0]]), &[0.0; 2 * C]).unwrap();
    let message = refused(&encoder, &narrow);
    assert!(
        message.contains("decoder.onnx: its input has 4 values") && message.contains("make it 6"),
        "{message}"
    );
    let message = refused(b"no network", &decoder);
    assert!(
        message.contains("encoder.onnx: not a network that ONNX Runtime can run"),
        "{message}"
    );
    let nan = GraphBuilder::new("input", &[2 * D])
        .gemm(&[0.0; 2 * D * D], &[f32::NAN; D])
        .finish("output")
        .unwrap();
    let message = refused(&nan, &decoder);
    assert!(
        message.contains(
            "encoder.onnx: does not work: it answers zeros with numbers that are not finite"
        ),
        "{message}"
    );
}

fn save(repository: &Path, platform: Platform, spec: CodeSpec) {
    let tensor = |name: &str, len| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![len],
    };
    let card = ModelToml {
        name: "code".to_owned(),
        platform,
        inputs: vec![tensor("input", D)],
        outputs: vec![tensor("output", C)],
        code: Some(CodeMetadata::new("linear", 0, spec)),
        training: toml::Table::new(),
    };
    card.save(&repository.join("code")).unwrap();
}

#[test]
fn an_entry_is_loaded_with_its_networks() {
    let root = tempfile::tempdir().unwrap();
    let version = root.path().join("code/1");
    std::fs::create_dir_all(&version).unwrap();
    let (encoder, decoder) = sum_of_two();
    save(
        root.path(),
        Platform::LearnedCode,
        CodeSpec::new(EncoderKind::Learned, 2, 1),
    );
    std::fs::write(version.join("encoder.onnx"), encoder).unwrap();
    let load = || ModelRepository::open(root.path()).unwrap().load("code");
    let message = load().unwrap_err().to_string();
    assert!(message.contains("decoder.onnx: missing"), "{message}");
    std::fs::write(version.join("decoder.onnx"), decoder).unwrap();
    let entry = load().unwrap();
    let code = LearnedCode::load(&runtime(), &entry, 1).unwrap();
    assert_eq!(
        (code.code().label().as_str(), code.calibration()),
        ("learned-k2-r1", None)
    );
    let message = LearnedCode::load(&runtime(), &entry, 7)
        .unwrap_err()
        .to_string();
    assert!(message.contains("no version 7"), "{message}");
}

#[test]
fn the_platform_and_the_code_go_together() {
    let root = tempfile::tempdir().unwrap();
    let tensor = TensorSpec {
        name: "x".to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![1],
    };
    for (platform, encoder) in [
        (Platform::OnnxRuntime, EncoderKind::Learned),
        (Platform::LearnedCode, EncoderKind::Sum),
    ] {
        let card = ModelToml {
            name: "code".to_owned(),
            platform,
            inputs: vec![tensor.clone()],
            outputs: vec![tensor.clone()],
            code: Some(CodeMetadata::new("linear", 0, CodeSpec::new(encoder, 2, 1))),
            training: toml::Table::new(),
        };
        let message = card
            .save(&root.path().join("code"))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("platform: ") && !message.contains('\n'),
            "{message}"
        );
    }
}
