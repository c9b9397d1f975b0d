//! Arrays in NPZ and safetensors files.

use super::*;

fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (header.len() as u16).to_le_bytes();
    [
        b"\x93NUMPY\x01\x00",
        length.as_slice(),
        header.as_bytes(),
        elements,
    ]
    .concat()
}

fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        zip.start_file(
            format!("{name}.npy"),
            zip::write::SimpleFileOptions::default(),
        )
        .unwrap();
        zip.write_all(array).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// The same two training samples and one test sample as one might name them.
fn arrays(train: &[f32]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("x_train", npy("<f4", "(2, 2)", &floats(train))),
        (
            "y_train",
            npy("<i8", "(2,)", &[[1, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat()),
        ),
        ("x_test", npy("<f4", "(1, 2)", &floats(&[5.0, -6.0]))),
        ("y_test", npy("|u1", "(1, 1)", &[1])),
        ("x_val", npy("|O", "(1,)", &[])),
    ]
}

#[test]
fn npz_files_hold_four_arrays() {
    let data = DataSet::load(folder_with(&[("d.npz", npz(&arrays(&[1.0, 2.0, 3.5, 4.0])))]).path())
        .unwrap();
    assert_eq!(
        data.train,
        Samples {
            shape: vec![2],
            values: vec![1.0, 2.0, 3.5, 4.0],
            labels: vec![1, 0]
        }
    );
    assert_eq!(
        data.test,
        Samples {
            shape: vec![2],
            values: vec![5.0, -6.0],
            labels: vec![1]
        }
    );
}

#[test]
fn images_in_npz_files_may_have_their_channels_last() {
    let image: Vec<u8> = (0..2)
        .flat_map(|pixel| [pixel, 10 + pixel, 20 + pixel])
        .collect();
    let both = image.repeat(2);
    let files = [
        ("train_images", npy("|u1", "(2, 2, 1, 3)", &both)),
        ("train_labels", npy("|u1", "(2,)", &[0, 1])),
        ("test_images", npy("|u1", "(2, 2, 1, 3)", &both)),
        ("test_labels", npy("|u1", "(2,)", &[0, 1])),
    ];
    let data = DataSet::load(folder_with(&[("d.npz", npz(&files))]).path()).unwrap();
    assert_eq!(data.train.shape, [3, 2, 1]);
    let wanted: Vec<f32> = [0, 1, 10, 11, 20, 21]
        .iter()
        .map(|&byte| byte as f32 / 255.0)
        .collect();
    assert_eq!(data.train.sample(1), wanted);
}

#[test]
fn arrays_may_come_without_labels() {
    use safetensors::tensor::{Dtype, TensorView, serialize};
    let without: Vec<(&str, Vec<u8>)> = arrays(&[1.0, 2.0, 3.5, 4.0])
        .into_iter()
        .filter(|(name, _)| !name.starts_with('y'))
        .collect();
    let (train, test) = (floats(&[1.0, 2.0, 3.5, 4.0]), floats(&[5.0, -6.0]));
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("x_train", view(&[2, 2], &train)),
        ("x_test", view(&[1, 2], &test)),
    ];
    for (name, contents) in [
        ("d.npz", npz(&without)),
        ("d.safetensors", serialize(tensors, None).unwrap()),
    ] {
        let data = DataSet::load(folder_with(&[(name, contents)]).path()).unwrap();
        assert_eq!(
            data.train,
            Samples {
                shape: vec![2],
                values: vec![1.0, 2.0, 3.5, 4.0],
                labels: vec![]
            }
        );
        assert_eq!(
            (data.test.len(), data.test.labels.len(), data.classes),
            (1, 0, 0),
            "{name}"
        );
        assert!(!data.is_labelled());
    }
    // Labels of one split only are a slip.
    let mut half = arrays(&[1.0; 4]);
    half.retain(|(name, _)| *name != "y_test");
    let message = complaint(&[("d.npz", npz(&half))]);
    assert!(
        message.contains("no array of test labels; name it y_test"),
        "{message}"
    );
}

#[test]
fn arrays_that_cannot_be_used_are_named() {
    let complaint = |arrays: &[(&str, Vec<u8>)]| complaint(&[("d.npz", npz(arrays))]);
    let message = complaint(&arrays(&[1.0, f32::NAN, 3.0, 4.0]));
    assert!(
        message.contains("array \"x_train\" is not finite: element 1 is NaN"),
        "{message}"
    );
    let message = complaint(&arrays(&[1.0; 4])[1..]);
    assert!(
        message.contains("no array of training samples; name it x_train"),
        "{message}"
    );
    assert!(message.contains("y_train, x_test"), "{message}");
    let with = |name: &'static str, array: Vec<u8>| {
        let mut arrays = arrays(&[1.0; 4]);
        arrays.retain(|(other, _)| *other != name);
        arrays.push((name, array));
        complaint(&arrays)
    };
    let message = with("y_train", npy("|u1", "(3,)", &[0, 1, 1]));
    assert!(
        message.contains("d.npz[x_train] has 2 samples") && message.contains("has 3 labels"),
        "{message}"
    );
    let message = with("y_train", npy("<i2", "(2,)", &[0, 1, 1, 0]));
    assert!(message.contains("one of them is 256"), "{message}");
    let message = with("y_train", npy("<f4", "(2,)", &floats(&[0.0, 1.0])));
    assert!(message.contains("of floating-point numbers"), "{message}");
    let message = with("x_train", npy("<i4", "(2, 2)", &[0; 16]));
    assert!(message.contains("save samples as uint8"), "{message}");
    let message = with("x_train", npy("<f4", "(2, 3)", &floats(&[1.0; 6])));
    assert!(
        message.contains("training samples have shape [3], test samples [2]"),
        "{message}"
    );
    let message = with("train_images", npy("<f4", "(2, 2)", &floats(&[1.0; 4])));
    assert!(
        message.contains("training samples, and so is \"x_train\""),
        "{message}"
    );
}

#[test]
fn safetensors_hold_the_same_arrays() {
    use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
    let (train, test) = (floats(&[1.0, 2.0, 3.5, 4.0]), floats(&[5.0, -6.0]));
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("d.safetensors");
    let view =
        |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let labels = [1, 0, 0, 0, 0, 0, 0, 0];
    let tensors = [
        ("x_train", view(Dtype::F32, &[2, 2], &train)),
        ("y_train", view(Dtype::I32, &[2], &labels)),
        ("x_test", view(Dtype::F32, &[1, 2], &test)),
        ("y_test", view(Dtype::U8, &[1], &labels[..1])),
    ];
    serialize_to_file(tensors, None, &path).unwrap();
    let data = DataSet::load(&path).unwrap();
    assert_eq!(
        data.train,
        Samples {
            shape: vec![2],
            values: vec![1.0, 2.0, 3.5, 4.0],
            labels: vec![1, 0]
        }
    );
    assert_eq!(data.test.labels, [1]);

    let contents = fs::read(&path).unwrap();
    fs::write(&path, &contents[..contents.len() - 3]).unwrap();
    let message = DataSet::load(folder.path()).unwrap_err().to_string();
    assert!(
        message.contains("d.safetensors: ") && message.contains("fetch it again"),
        "{message}"
    );
}
