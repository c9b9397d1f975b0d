//! A code that is known in closed form: networks that add and subtract, for a linear model.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use parapet_config::FileError;
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
    let solved = blocks(C, &[&[0.0, -1.0, 1.0], &[-1.0, 0.0, 1.0]]);
    let decoder = linear_model(&[3 * C], &solved, &[0.0; 2 * C]).unwrap();
    (encoder, decoder)
}

/// k = 2, r = 2: `P_1 = X_1`, `P_2 = 10 X_2`.
fn copies_of_two() -> (Vec<u8>, Vec<u8>) {
    let copies = blocks(D, &[&[1.0, 0.0], &[0.0, 10.0]]);
    let encoder = linear_model(&[2 * D], &copies, &[0.0; 2 * D]).unwrap();
    let solved = blocks(C, &[&[0.0, 0.0, 1.0, 0.0], &[0.0, 0.0, 0.0, 0.1]]);
    let decoder = linear_model(&[4 * C], &solved, &[0.0; 2 * C]).unwrap();
    (encoder, decoder)
}

fn load(spec: &CodeSpec, encoder: &[u8], decoder: &[u8]) -> Result<LearnedCode, FileError> {
    let sizes = Sizes { spec, sample_len: D, output_len: C };
    LearnedCode::from_onnx(&runtime(), sizes, Path::new("here"), (encoder, decoder))
}

fn code(
    r: usize,
    transform: OutputTransform,
    (encoder, decoder): (Vec<u8>, Vec<u8>),
) -> LearnedCode {
    let spec = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Learned, 2, r) };
    load(&spec, &encoder, &decoder).unwrap()
}

/// Linear, sample by sample.
fn model(samples: &[f32]) -> Vec<f32> {
    samples.chunks(D).flat_map(|x| [x[0] - 2.0 * x[1], 0.5 * x[2] + x[0]]).collect()
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
        let transform = OutputTransform::Standardised {
            mean: vec![0.0],
            deviation: vec![deviation],
        };
        let code = code(1, transform, sum_of_two());
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
    let encode = |row, queries: &[&[f32]]| code.encoder().encode(row, queries, &mut [0.0; D]);
    assert!(encode(1, &[one, one]).is_err(), "there is one row");
    assert!(encode(0, &[one]).is_err(), "there are two queries");
    let (answer, odd): (&[f32], &[f32]) = (&[0.0; C], &[0.0; C + 1]);
    let decode = |first, parity: &[f32]| {
        let mut out = vec![0.0; parity.len()];
        let predictions = [None, first];
        code.decoder().decode(&predictions, &[Some(parity)], 0, &mut out)
    };
    assert!(decode(None, answer).is_err(), "two are missing");
    assert!(decode(Some(odd), odd).is_err(), "half a sample");
}

#[test]
fn networks_that_do_not_fit_are_refused_in_one_line() {
    let (encoder, decoder) = sum_of_two();
    let short = linear_model(&[2 * D], &blocks(2 * D, &[&[1.0]]), &[0.0; 2 * D]).unwrap();
    let narrow = linear_model(&[2 * C], &blocks(2 * C, &[&[1.0]]), &[0.0; 2 * C]).unwrap();
    let nan = GraphBuilder::new("input", &[2 * D])
        .gemm(&[0.0; 2 * D * D], &[f32::NAN; D])
        .finish("output")
        .unwrap();
    let [four, six] = ["encoder.onnx: its output has 4", "encoder.onnx: its output has 6"];
    let none = "encoder.onnx: not a network that ONNX Runtime can run";
    let zeros = "encoder.onnx: does not work: it answers zeros with numbers that are not finite";
    for (encoder, decoder, named, wanted) in [
        (&decoder[..], &decoder, four, "make it 3"),
        (&short, &decoder, six, "make it 3"),
        (&encoder, &narrow, "decoder.onnx: its input has 4 values", "make it 6"),
        (b"no network", &decoder, none, ""),
        (&nan, &decoder, zeros, ""),
    ] {
        let spec = CodeSpec::new(EncoderKind::Learned, 2, 1);
        let message = load(&spec, encoder, decoder).unwrap_err().to_string();
        let is_named = message.contains(named) && message.contains(wanted);
        assert!(is_named && !message.contains('\n'), "{message}");
    }
}

fn card(platform: Platform, spec: CodeSpec) -> ModelToml {
    let tensor = |name: &str, len| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: vec![len].into(),
    };
    ModelToml {
        name: "code".to_owned(),
        platform,
        inputs: vec![tensor("input", D)],
        outputs: vec![tensor("output", C)],
        output: None,
        code: Some(CodeMetadata::new("linear", 0, spec)),
        training: toml::Table::new(),
    }
}

#[test]
fn an_entry_is_loaded_with_its_networks() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("code");
    let version = folder.join("1");
    std::fs::create_dir_all(&version).unwrap();
    let (encoder, decoder) = sum_of_two();
    let spec = CodeSpec::new(EncoderKind::Learned, 2, 1);
    card(Platform::LearnedCode, spec).save(&folder).unwrap();
    std::fs::write(version.join("encoder.onnx"), encoder).unwrap();
    let load = || ModelRepository::open(root.path()).unwrap().load("code");
    let message = load().unwrap_err().to_string();
    assert!(message.contains("decoder.onnx: missing"), "{message}");
    std::fs::write(version.join("decoder.onnx"), decoder).unwrap();
    let entry = load().unwrap();
    let code = LearnedCode::load(&runtime(), &entry, 1).unwrap();
    assert_eq!((code.code().label().as_str(), code.calibration()), ("learned-k2-r1", None));
    let message = LearnedCode::load(&runtime(), &entry, 7).unwrap_err().to_string();
    assert!(message.contains("no version 7"), "{message}");
}

#[test]
fn the_platform_and_the_code_go_together() {
    let root = tempfile::tempdir().unwrap();
    for (platform, encoder) in
        [(Platform::OnnxRuntime, EncoderKind::Learned), (Platform::LearnedCode, EncoderKind::Sum)]
    {
        let card = card(platform, CodeSpec::new(encoder, 2, 1));
        let refused = card.save(&root.path().join("code")).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("platform: ") && !message.contains('\n'));
    }
}
