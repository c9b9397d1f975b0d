//! Models of any origin: those that can be used, and one clear line for those that cannot.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use parapet_onnx::{GraphBuilder, linear_model};
use parity_trainer::TrainError;
use parity_trainer::deployed::{Deployed, OpenOptions, cached_outputs, open};
use tch::{CModule, Tensor};

const SHAPE: [usize; 3] = [1, 2, 3];
const SAMPLES: [f32; 12] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5];
/// First output: the sum of the values; second: the first value plus 10.
const WEIGHTS: [f32; 12] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
const ANSWERS: [f32; 4] = [21.0, 11.0, 7.5, 10.0];

fn options() -> OpenOptions {
    OpenOptions { threads: 1, ..OpenOptions::default() }
}

fn file(folder: &Path, name: &str, contents: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    path
}

fn try_open(path: &Path) -> Result<Deployed, TrainError> {
    open(path, &options(), &SHAPE, &SAMPLES)
}

/// Checks that the file is refused in a line that names it and has `part`.
fn assert_refused(path: &Path, part: &str) {
    let message = try_open(path).unwrap_err().to_string();
    let named = message.contains(path.to_str().unwrap());
    assert!(named && message.contains(part) && !message.contains('\n'), "{message}");
}

/// A linear model of two outputs as an ONNX file.
fn linear(folder: &Path, weights: &[f32], bias: [f32; 2]) -> PathBuf {
    file(folder, "m.onnx", &linear_model(&[6], weights, &bias).unwrap())
}

/// Saves a module that gives what `forward` does, traced with `samples` samples.
fn trace(path: &Path, samples: i64, forward: impl Fn(&Tensor) -> Tensor) {
    let example = Tensor::from_slice(&SAMPLES[..6 * samples as usize]).view([samples, 1, 2, 3]);
    let mut forward = |inputs: &[Tensor]| vec![forward(&inputs[0])];
    let module = CModule::create_by_tracing("traced", "forward", &[example], &mut forward);
    module.unwrap().save(path).unwrap();
}

#[test]
fn onnx_of_any_shape_that_holds_the_samples_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for shape in [vec![1, 2, 3], vec![2, 3], vec![2, 3, 1], vec![6]] {
        let graph = GraphBuilder::new("x", &shape).flatten().gemm(&WEIGHTS, &[0.0, 10.0]);
        let path = file(folder.path(), "two-sums.onnx", &graph.finish("y").unwrap());
        let deployed = try_open(&path).unwrap();
        assert_eq!((deployed.name.as_str(), deployed.model.outputs()), ("two-sums", 2));
        assert_eq!(deployed.model.infer(&SAMPLES).unwrap(), ANSWERS, "{shape:?}");
    }
}

/// The same graph with another output, of the name of a value in it: messages that follow each
/// other are merged.
fn with_output(model: Vec<u8>, name: &str) -> Vec<u8> {
    let field = |number: u8, contents: &[u8]| {
        let length = u8::try_from(contents.len()).unwrap();
        [&[number << 3 | 2, length], contents].concat()
    };
    let tensor_type = field(1, &[1 << 3, 1]); // elem_type = FLOAT
    let value_info = [field(1, name.as_bytes()), field(2, &tensor_type)].concat();
    [model, field(7, &field(12, &value_info))].concat() // ModelProto.graph.output
}

#[test]
fn of_several_outputs_the_chosen_one_is_told_to_the_parity_model() {
    let folder = tempfile::tempdir().unwrap();
    let graph =
        GraphBuilder::new("x", &SHAPE).flatten().gemm(&WEIGHTS, &[0.0, 10.0]).finish("y").unwrap();
    let one = file(folder.path(), "one.onnx", &graph);
    let one = try_open(&one).unwrap();
    assert_eq!((one.chosen_input, one.chosen_output), (None, None));

    let graph = with_output(graph, "Flatten_0_output");
    let two = file(folder.path(), "two.onnx", &graph);
    assert_refused(&two, "--output");
    let options = OpenOptions { output: Some("y".to_owned()), ..options() };
    let two = open(&two, &options, &SHAPE, &SAMPLES).unwrap();
    assert_eq!((two.chosen_input.as_deref(), two.chosen_output.as_deref()), (None, Some("y")));
    assert_eq!(two.model.infer(&SAMPLES).unwrap(), ANSWERS);
}

#[test]
fn an_entry_of_free_axes_is_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let entry = folder.path().join("m");
    let tensor = |side: &str, name: &str, shape: &str| {
        format!("[[{side}]]\nname = \"{name}\"\ndatatype = \"FP32\"\nshape = {shape}\n")
    };
    fs::create_dir_all(entry.join("1")).unwrap();
    file(&entry.join("1"), "model.onnx", b"not looked into");
    // One axis of steps, `[1, -1, features]`, would be that of sequences.
    for (input, output, named) in [
        ("[2, -1, 3]", "[2]", "\"x\" has shape [2, -1, 3]"),
        ("[-1]", "[2]", "\"x\" has shape [-1]"),
        ("[1, -1, -1]", "[2]", "\"x\" has shape [1, -1, -1]"),
        ("[1, -1, 3]", "[-1, 2]", "\"x\" has shape [1, -1, 3]"),
    ] {
        let toml = "name = \"m\"\nplatform = \"onnxruntime_onnx\"\n".to_owned()
            + &tensor("inputs", "x", input)
            + &tensor("outputs", "y", output);
        file(&entry, "model.toml", toml.as_bytes());
        assert_refused(&entry, &format!("model.toml: {named}, and a code needs fixed axes"));
        assert_refused(&entry, "describe the model again with --shape");
    }
}

#[test]
fn torchscript_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traced.pt");
    let weights = Tensor::from_slice(&WEIGHTS).view([2, 6]);
    let bias = Tensor::from_slice(&[0.0f32, 10.0]);
    trace(&path, 2, |input| input.flatten(1, -1).linear(&weights, Some(&bias)));
    let deployed = try_open(&path).unwrap();
    assert_eq!((deployed.name.as_str(), deployed.model.outputs()), ("traced", 2));
    assert_eq!(deployed.model.infer(&SAMPLES).unwrap(), ANSWERS);

    // One sample is all that this one takes.
    let fixed = folder.path().join("fixed.pt");
    trace(&fixed, 1, |input| input.reshape([1, 6]).linear(&weights, Some(&bias)));
    assert_refused(&fixed, "its batch axis is fixed at 1; export it with a dynamic");
    let broken = file(folder.path(), "broken.pt", b"no zip");
    assert_refused(&broken, "libtorch cannot use it");
}

#[test]
fn model_that_cannot_be_learned_from_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let other = linear_model(&[7], &[0.0; 14], &[0.0; 2]).unwrap();
    let nan = linear_model(&[6], &WEIGHTS, &[f32::NAN, 0.0]).unwrap();
    // The batch axis, named "batch", becomes one of length 4: a varint stretched to the same number
    // of bytes.
    let mut fixed = linear_model(&[6], &WEIGHTS, &[0.0; 2]).unwrap();
    let dynamic = b"\x12\x05batch";
    let places: Vec<usize> = (0..fixed.len() - dynamic.len())
        .filter(|&at| &fixed[at..at + dynamic.len()] == dynamic)
        .collect();
    assert!(!places.is_empty());
    for at in places {
        fixed[at..at + dynamic.len()].copy_from_slice(b"\x08\x84\x80\x80\x80\x80\x00");
    }
    for (name, contents, says) in [
        ("other.onnx", other, "takes samples of shape [7], the data's have [1, 2, 3]"),
        ("nan.onnx", nan, "answers sample 0 with NaN"),
        ("fixed.onnx", fixed, "its batch axis is fixed at 4; export it with a dynamic"),
        ("text.onnx", b"hello".to_vec(), "ONNX Runtime cannot use it"),
        ("model.h5", b"hello".to_vec(), "what model is this?"),
    ] {
        assert_refused(&file(folder.path(), name, &contents), says);
    }
    assert_refused(&folder.path().join("none.onnx"), "no such model");
    assert_refused(folder.path(), "a folder without model.toml");
}

#[test]
fn tensor_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = linear(folder.path(), &WEIGHTS, [0.0; 2]);
    let options = OpenOptions { output: Some("logits".to_owned()), ..options() };
    let message = open(&path, &options, &SHAPE, &SAMPLES).unwrap_err().to_string();
    let says = "has no output `logits`; --output can be: ";
    assert!(message.contains(says), "{message}");
}

#[test]
fn outputs_are_computed_once() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = try_open(&linear(folder.path(), &WEIGHTS, [0.0, 10.0])).unwrap();
    let cache = folder.path().join("cache");
    let ask = |deployed: &Deployed, samples: &[f32]| {
        cached_outputs(&cache, deployed, samples, |_, _| {}).unwrap()
    };
    assert_eq!(ask(&deployed, &SAMPLES), (ANSWERS.to_vec(), false));
    assert_eq!(ask(&deployed, &SAMPLES), (ANSWERS.to_vec(), true));
    let mut others = SAMPLES;
    others[0] = 1.5;
    assert!(!ask(&deployed, &others).1);

    for item in fs::read_dir(&cache).unwrap() {
        let path = item.unwrap().path();
        let mut contents = fs::read(&path).unwrap();
        contents[3] ^= 1;
        fs::write(&path, contents).unwrap();
    }
    let damaged = ask(&deployed, &SAMPLES);
    let says = "a damaged file is not believed";
    assert_eq!(damaged, (ANSWERS.to_vec(), false), "{says}");
    let retrained = try_open(&linear(folder.path(), &WEIGHTS, [1.0, 10.0])).unwrap();
    assert!(!ask(&retrained, &SAMPLES).1);
}

#[test]
fn cache_removes_nothing_but_its_own_old_files() {
    let folder = tempfile::tempdir().unwrap();
    let deployed = try_open(&linear(folder.path(), &WEIGHTS, [0.0, 10.0])).unwrap();
    for number in 0..40 {
        file(folder.path(), &format!("notes-{number}.f32"), b"the user's");
    }
    for shift in 0..20u8 {
        let samples = SAMPLES.map(|value| value + f32::from(shift));
        let outputs = cached_outputs(folder.path(), &deployed, &samples, |_, _| {});
        assert!(!outputs.unwrap().1);
    }
    let items = fs::read_dir(folder.path()).unwrap();
    let left = items.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (own, others): (Vec<String>, Vec<String>) = left.partition(|name| name.len() > 60);
    assert_eq!((own.len(), others.len()), (16, 41), "{own:?}");
}

#[test]
fn output_that_is_no_number_shows_before_all_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = linear(folder.path(), &[1e38; 12], [0.0; 2]);
    let deployed = open(&path, &options(), &SHAPE, &[0.0; 12]).unwrap();
    let mut samples = vec![0.0; 6 * 3000];
    samples[6 * 1500] = 1e3;
    let mut told = Vec::new();
    let cache = folder.path().join("cache");
    let refused = cached_outputs(&cache, &deployed, &samples, |done, _| told.push(done));
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("answers sample 1500 with inf"), "{message}");
    assert_eq!(told, [1024]);
    assert!(!cache.exists());
}
