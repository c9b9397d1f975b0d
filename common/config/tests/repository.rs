//! Repositories on disk: what is read back, and what each mistake is told.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use parapet_config::repository::{
    Calibration, CodeMetadata, CodeSpec, Datatype, EncoderKind, ModelRepository, ModelToml,
    OutputTransform, Platform, Score, TensorSpec, take_inputs,
};
use parapet_open_inference::Tensor;

const PARITY: &str = r#"
name = "fashion-parity"
platform = "onnxruntime_onnx"

[[inputs]]
name = "input"
datatype = "FP32"
shape = [1, 28, 28]

[[outputs]]
name = "output"
datatype = "FP32"
shape = [10]

[code]
deployed = "fashion"
row = 0
encoder = "concat"
k = 2
r = 1
generator = [[1.0, 1.0]]

[training]
epochs = 5
"#;

fn repository(toml: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("fashion-parity");
    for version in ["2", "10", "draft"] {
        fs::create_dir_all(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("model.onnx"), b"").unwrap();
    }
    fs::write(folder.join("model.toml"), toml).unwrap();
    root
}

fn load(root: &Path) -> Result<parapet_config::repository::ModelEntry, parapet_config::FileError> {
    ModelRepository::open(root).unwrap().load("fashion-parity")
}

fn assert_named<T: Debug>(result: Result<T, parapet_config::FileError>, named: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(named), "{message}");
}

fn error(toml: &str) -> String {
    let root = repository(toml);
    let error = load(root.path()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

#[test]
fn an_entry_is_read_with_its_versions_and_code() {
    let root = repository(PARITY);
    let entry = load(root.path()).unwrap();
    assert_eq!(entry.versions, [2, 10]);
    assert_eq!(entry.latest(), 10);
    let file = entry.model_file(2).unwrap();
    assert!(file.ends_with("fashion-parity/2/model.onnx"));
    assert_named(entry.model_file(3), "there is 2, 10");
    assert_eq!(entry.inputs[0].sample_len(), Some(784));
    assert_eq!(entry.metadata().inputs[0].shape, [-1, 1, 28, 28]);
    let code = entry.code.as_ref().unwrap();
    assert_eq!(
        (code.deployed.as_str(), code.spec.encoder, code.spec.k),
        ("fashion", EncoderKind::Concat, 2)
    );
    assert_eq!(entry.training["epochs"].as_integer(), Some(5));
    let repository = ModelRepository::open(root.path()).unwrap();
    assert_eq!(repository.list().unwrap(), ["fashion-parity"]);
}

#[test]
fn what_is_saved_is_loaded() {
    let root = repository("");
    let spec = |name: &str, shape: &[usize]| TensorSpec {
        name: name.to_owned(),
        datatype: Datatype::Fp32,
        shape: shape.to_vec().into(),
    };
    let mut training = toml::Table::new();
    training.insert("seed".to_owned(), toml::Value::Integer(7));
    let model = ModelToml {
        name: "fashion-parity".to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: vec![spec("input", &[1, 28, 28])],
        outputs: vec![spec("output", &[10])],
        output: None,
        code: Some(CodeMetadata {
            deployed: "fashion".to_owned(),
            row: 0,
            inputs: vec!["image".to_owned()],
            outputs: vec!["scores".to_owned()],
            spec: CodeSpec {
                generator: Some(vec![vec![1.0, 0.1]]),
                transform: OutputTransform::Standardised {
                    mean: vec![-36.1],
                    deviation: vec![37.3],
                },
                ..CodeSpec::new(EncoderKind::Sum, 2, 1)
            },
            padding: None,
            isolated: false,
            calibration: Some(Calibration {
                score: Score::Margin,
                edges: vec![0.25, 0.75],
                agreement: vec![0.5, 0.9, 0.99],
                error: None,
            }),
        }),
        training,
    };
    model.save(&root.path().join("fashion-parity")).unwrap();
    let entry = load(root.path()).unwrap();
    assert_eq!(*entry, model);
    let left = fs::read_dir(root.path().join("fashion-parity")).unwrap();
    assert_eq!(left.count(), 4, "model.toml and three folders, no partial file");
}

#[test]
fn the_codes_transform_is_raw_unless_it_is_given() {
    let transform = |line: &str| {
        let root = repository(&PARITY.replacen("r = 1", &format!("r = 1\n{line}"), 1));
        let code = load(root.path()).unwrap().code.clone();
        code.unwrap().spec.transform
    };
    let log_softmax = OutputTransform::LogSoftmax { floor: -20.0 };
    let standardised = OutputTransform::Standardised { mean: vec![-36.0], deviation: vec![37.5] };
    for (line, read) in [
        ("", OutputTransform::Raw),
        ("transform = { kind = \"raw\" }", OutputTransform::Raw),
        ("transform = { kind = \"log_softmax\" }", log_softmax),
        ("transform = { kind = \"standardised\", mean = [-36], deviation = [37.5] }", standardised),
    ] {
        assert_eq!(transform(line), read);
    }
}

#[test]
fn every_mistake_names_the_file_the_field_and_the_fix() {
    let replaced = |from: &str, to: &str| error(&PARITY.replacen(from, to, 1));
    assert!(
        replaced("k = 2", "k = 2\nq = 3").contains("model.toml: line 20: code: unknown field `q`")
    );
    assert!(replaced("name = \"fashion-parity\"", "").contains("missing field `name`"));
    assert!(
        replaced("\"fashion-parity\"", "\"fashion\"").contains("write name = \"fashion-parity\"")
    );
    assert!(replaced("FP32", "FP31").contains("line 7"));
    assert!(replaced("\"onnxruntime_onnx\"", "3").contains("line 3: platform: invalid type"));
    assert!(replaced("[1, 28, 28]", "[0, 28]").contains("inputs[0]: shape [0, 28]"));
    assert!(replaced("row = 0", "row = 1").contains("code.row: 1 is beyond"));
    assert!(replaced("k = 2", "k = 1").contains("model.toml: code.k: 1"));
    assert!(replaced("k = 2", "k = 2\nisolated = true").contains("code.isolated: true, and"));
    for (kind, part) in [
        ("kind = \"boxes\"", "output.kind: \"boxes\", for an output of shape"),
        ("kind = \"regression\"", "output.tolerance: missing; give"),
        ("kind = \"box\"", "unknown variant `box`"),
    ] {
        let said = replaced("[code]", &format!("[output]\n{kind}\n[code]"));
        assert!(said.contains(part), "{said}");
    }
    assert!(replaced("\"concat\"", "\"berrut\"").contains("unknown variant `berrut`"));
    let calibration =
        |given: &str| replaced("[training]", &format!("[code.calibration]\n{given}\n[training]"));
    assert!(calibration("edges = [0.5]\nagreement = [0.9]").contains("1 edges and 1 agreements"));
    assert!(
        calibration("edges = [0.5]\nagreement = [0.9, 0.8]")
            .contains("code.calibration.agreement[1]: 0.8")
    );
    assert!(
        calibration("score = \"hope\"\nedges = []\nagreement = [1]").contains("top_probability")
    );
    let transform = |given: &str| replaced("r = 1", &format!("r = 1\ntransform = {given}"));
    assert!(transform("{ kind = \"softmax\" }").contains("log_softmax"));
    assert!(transform("{ kind = \"log_softmax\", flor = -9 }").contains("flor"));
    assert!(transform("{ kind = \"log_softmax\", floor = 1 }").contains("code.transform.floor: 1"));
    assert!(
        transform("{ kind = \"standardised\", mean = [0, 0], deviation = [1, 1] }")
            .contains("give 1 or 10")
    );
    assert!(replaced("\"fashion\"", "\"../fashion\"").contains("model name"));
    assert!(replaced("[[inputs]]", "[[inputs").contains("line 5"));
}

#[test]
fn missing_models_files_and_versions_are_named() {
    let root = repository(PARITY);
    let repository = ModelRepository::open(root.path()).unwrap();
    assert_named(repository.load("cifar"), "there is fashion-parity");
    assert_named(repository.load("../x"), "model name");
    fs::remove_file(root.path().join("fashion-parity/2/model.onnx")).unwrap();
    assert_named(load(root.path()), "2: model.onnx: missing");
    for version in ["2", "10"] {
        fs::remove_dir_all(root.path().join("fashion-parity").join(version)).unwrap();
    }
    assert_named(load(root.path()), "put the model's file at 1/model.onnx");
    let gone = ModelRepository::open(root.path().join("gone"));
    assert_named(gone, "not a folder");
}

#[test]
fn a_model_that_others_serve_needs_no_file_and_keeps_its_platform() {
    let root = repository(&PARITY.replace("onnxruntime_onnx", "tensorrt_plan"));
    let entry = load(root.path()).unwrap();
    assert_eq!(entry.metadata().platform, "tensorrt_plan");
    assert_eq!(entry.versions, [2, 10]);
    for version in ["2", "10"] {
        fs::remove_dir_all(root.path().join("fashion-parity").join(version)).unwrap();
    }
    assert_eq!(load(root.path()).unwrap().versions, [1]);
    entry.save(root.path()).unwrap();
    let saved = fs::read_to_string(root.path().join("model.toml")).unwrap();
    assert!(saved.contains("platform = \"tensorrt_plan\""), "{saved}");
}

#[test]
fn a_torch_script_module_has_another_file() {
    let root = repository(&PARITY.replace("onnxruntime_onnx", "pytorch_libtorch"));
    assert_named(load(root.path()), "model.pt: missing");
    for version in ["2", "10"] {
        let file = format!("fashion-parity/{version}/model.pt");
        fs::write(root.path().join(file), b"").unwrap();
    }
    let entry = load(root.path()).unwrap();
    let file = entry.model_file(2).unwrap();
    assert!(file.ends_with("fashion-parity/2/model.pt"));
    assert_eq!(entry.metadata().platform, "pytorch_libtorch");
}

/// A model without a code whose input has these axes.
fn free(axes: &str) -> String {
    let (tensors, _) = PARITY.split_once("[code]").unwrap();
    tensors.replacen("[1, 28, 28]", axes, 1)
}

#[test]
fn an_axis_of_minus_one_takes_any_length_from_one_on() {
    let entry = load(repository(&free("[-1, 64]")).path()).unwrap();
    assert_eq!(entry.metadata().inputs[0].shape, [-1, -1, 64]);
    assert_eq!(entry.free_tensor().map(|spec| spec.name.as_str()), Some("input"));
    let take = |shape: &[usize]| {
        let values = vec![0.0; shape.iter().product()];
        let tensor = Tensor::from_f32("input", shape, &values).unwrap();
        take_inputs(&entry.inputs, vec![tensor], 4).map(|(_, rows)| rows)
    };
    for shape in [[1, 1, 64], [3, 7, 64], [4, 512, 64]] {
        assert_eq!(take(&shape), Ok(shape[0]));
    }
    for shape in [&[1, 7, 63][..], &[1, 0, 64], &[1, 64], &[1, 7, 64, 1]] {
        let error = take(shape).unwrap_err();
        let expected = format!("input \"input\": shape {shape:?}, expected [batch, -1, 64]");
        assert_eq!(error, expected);
    }
}

#[test]
fn inputs_of_one_request_may_have_different_lengths() {
    let second = "[[inputs]]\nname = \"mask\"\ndatatype = \"FP32\"\nshape = [-1]\n[[outputs]]";
    let toml = free("[-1]").replacen("[[outputs]]", second, 1);
    let entry = load(repository(&toml).path()).unwrap();
    let tensor =
        |name, length| Tensor::from_f32(name, [2, length], &vec![0.0; 2 * length]).unwrap();
    let given = vec![tensor("mask", 9), tensor("input", 5)];
    let (inputs, rows) = take_inputs(&entry.inputs, given, 4).unwrap();
    assert_eq!((&inputs[0].shape[..], &inputs[1].shape[..], rows), (&[2, 5][..], &[2, 9][..], 2));
}

#[test]
fn axes_that_are_no_lengths_and_codes_of_free_axes_are_refused() {
    for (toml, said) in [
        (free("[-2, 64]"), "line 8: inputs[0].shape: -2 is no length; give 1 or more, or -1"),
        (free("[-1, 0]"), "inputs[0]: shape [-1, 0] has no or too many elements"),
        (free("[-1, 9223372036854775807, 3]"), "has no or too many elements"),
        (
            PARITY.replacen("[1, 28, 28]", "[1, -1, 28]", 1),
            "code: for \"input\" of shape [1, -1, 28]",
        ),
        (
            free("[4]").replacen("[10]", "[-1, 10]", 1) + "[output]\nkind = \"embedding\"\n",
            "output: given for an output of shape [-1, 10]; leave it out",
        ),
    ] {
        let error = error(&toml);
        assert!(error.contains(said), "{error}");
    }
}
