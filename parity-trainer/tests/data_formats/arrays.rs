//! Arrays in NPZ and safetensors files.

use safetensors::tensor::{Dtype, TensorView, serialize};

use super::*;

fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (header.len() as u16).to_le_bytes();
    let start = [b"\x93NUMPY\x01\x00", &length[..]].concat();
    [&start, header.as_bytes(), elements].concat()
}

fn npz(arrays: &[(&str, Vec<u8>)]) -> (&'static str, Vec<u8>) {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(array).unwrap();
    }
    ("d.npz", zip.finish().unwrap().into_inner())
}

fn floats(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().map(|value| value.to_le_bytes());
    bytes.flatten().collect()
}

const LABELS: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];
const TRAIN: [f32; 4] = [1.0, 2.0, 3.5, 4.0];
const TEST: [f32; 2] = [5.0, -6.0];

/// The same two training samples and one test sample as one might name them.
fn arrays(train: &[f32]) -> Files<'static> {
    let labels = [LABELS, [0; 8]].concat();
    vec![
        ("x_train", npy("<f4", "(2, 2)", &floats(train))),
        ("y_train", npy("<i8", "(2,)", &labels)),
        ("x_test", npy("<f4", "(1, 2)", &floats(&TEST))),
        ("y_test", npy("|u1", "(1, 1)", &[1])),
        ("x_val", npy("|O", "(1,)", &[])),
    ]
}

fn tensors() -> (&'static str, Vec<u8>) {
    let (train, test) = (floats(&TRAIN), floats(&TEST));
    let view =
        |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("x_train", view(Dtype::F32, &[2, 2], &train)),
        ("y_train", view(Dtype::I32, &[2], &LABELS)),
        ("x_test", view(Dtype::F32, &[1, 2], &test)),
        ("y_test", view(Dtype::U8, &[1], &LABELS[..1])),
    ];
    ("d.safetensors", serialize(tensors, None).unwrap())
}

fn assert_samples(samples: &Samples, values: &[f32], labels: &[u8]) {
    let expected = Samples::new(vec![2], values.to_vec(), labels.to_vec());
    assert_eq!(*samples, expected);
}

#[test]
fn both_formats_hold_four_arrays() {
    for file in [npz(&arrays(&TRAIN)), tensors()] {
        let data = load(&[file]);
        assert_samples(&data.train, &TRAIN, &[1, 0]);
        assert_samples(&data.test, &TEST, &[1]);
    }
}

#[test]
fn a_torn_safetensors_file_is_named() {
    let (name, contents) = tensors();
    let torn = contents[..contents.len() - 3].to_vec();
    assert_files_refused(&[(name, torn)], "d.safetensors: |fetch it again");
}

#[test]
fn a_safetensors_file_beyond_the_limit_is_refused_before_it_is_read() {
    let folder = folder_with(&[tensors()]);
    let path = folder.path().join("d.safetensors");
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_len((1 << 34) + 1).unwrap(); // a hole, which takes no room
    assert_refused(folder.path(), "d.safetensors: |at most 17179869184 are read");
}

#[test]
fn images_in_npz_files_may_have_their_channels_last() {
    let both = [0, 10, 20, 1, 11, 21].repeat(2);
    let images = || npy("|u1", "(2, 2, 1, 3)", &both);
    let labels = || npy("|u1", "(2,)", &[0, 1]);
    let data = load(&[npz(&[
        ("train_images", images()),
        ("train_labels", labels()),
        ("test_images", images()),
        ("test_labels", labels()),
    ])]);
    assert_eq!(data.train.shape, [3, 2, 1]);
    let planar = [0, 1, 10, 11, 20, 21].map(|byte| byte as f32 / 255.0);
    assert_eq!(data.train.sample(1), planar);
}

#[test]
fn arrays_may_come_without_labels() {
    let mut without = arrays(&TRAIN);
    without.retain(|(name, _)| !name.starts_with('y'));
    let (train, test) = (floats(&TRAIN), floats(&TEST));
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let (train, test) = (view(&[2, 2], &train), view(&[1, 2], &test));
    let tensors = [("x_train", train), ("x_test", test)];
    let safetensors = ("d.safetensors", serialize(tensors, None).unwrap());
    for file in [npz(&without), safetensors] {
        let data = load(&[file]);
        assert_samples(&data.train, &TRAIN, &[]);
        assert_samples(&data.test, &TEST, &[]);
        assert!(data.classes == 0 && !data.is_labelled());
    }
    // Labels of one split only are a slip.
    let mut half = arrays(&TRAIN);
    half.retain(|(name, _)| *name != "y_test");
    let problem = "no array of test labels; name it y_test";
    assert_files_refused(&[npz(&half)], problem);
}

#[test]
fn arrays_that_cannot_be_used_are_named() {
    let without_samples = npz(&arrays(&TRAIN)[1..]);
    let problem = "no array of training samples; name it x_train|y_train, x_test";
    assert_files_refused(&[without_samples], problem);
    let with = |name: &'static str, array: Vec<u8>, parts: &str| {
        let mut arrays = arrays(&TRAIN);
        arrays.retain(|(other, _)| *other != name);
        arrays.push((name, array));
        assert_files_refused(&[npz(&arrays)], parts);
    };
    let nan = npy("<f4", "(2, 2)", &floats(&[1.0, f32::NAN, 3.0, 4.0]));
    with("x_train", nan, "array \"x_train\" is not finite: element 1 is NaN");
    let three = npy("|u1", "(3,)", &[0, 1, 1]);
    with("y_train", three, "d.npz[x_train] has 2 samples|has 3 labels");
    let large = npy("<i2", "(2,)", &[0, 1, 1, 0]);
    with("y_train", large, "one of them is 256");
    let fractions = npy("<f4", "(2,)", &floats(&TEST));
    with("y_train", fractions, "of floating-point numbers");
    let whole_numbers = npy("<i4", "(2, 2)", &[0; 16]);
    with("x_train", whole_numbers, "save samples as uint8");
    let other_shape = npy("<f4", "(2, 3)", &floats(&[1.0; 6]));
    let problem = "training samples have shape [3], test samples [2]";
    with("x_train", other_shape, problem);
    let twice = npy("<f4", "(2, 2)", &floats(&TRAIN));
    with("train_images", twice, "training samples, and so is \"x_train\"");
}
