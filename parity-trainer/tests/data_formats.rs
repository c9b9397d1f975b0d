//! Data in every format that is read give the same samples, and what cannot be used is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use common::gzip;
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use parity_trainer::data::{DataSet, LoadProgress, Samples};

/// Width and height of the tests' images.
const SIZE: (u32, u32) = (3, 2);

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Every pixel is `(x, y, tint)`.
fn coloured(tint: u8) -> Vec<u8> {
    let image = RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| image::Rgb([x as u8, y as u8, tint]));
    encoded(image, ImageFormat::Png)
}

fn grey(light: u8) -> Vec<u8> {
    encoded(
        GrayImage::from_pixel(SIZE.0, SIZE.1, image::Luma([light])),
        ImageFormat::Png,
    )
}

/// Two classes, not in the order of their names.
fn pictures() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("train/dog/1.png", coloured(1)),
        ("train/cat/1.png", coloured(2)),
        ("train/dog/2.png", coloured(3)),
        ("test/cat/1.png", coloured(4)),
        ("test/dog/1.png", coloured(5)),
    ]
}

fn write_folder(folder: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, contents) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        tar.append_data(&mut header, name, contents.as_slice())
            .unwrap();
    }
    tar.into_inner().unwrap()
}

fn tint(image: &[f32]) -> u8 {
    (image[12] * 255.0).round() as u8
}

fn tints(samples: &Samples) -> Vec<(u8, u8)> {
    (0..samples.len())
        .map(|index| (tint(samples.sample(index)), samples.labels[index]))
        .collect()
}

fn folder_with(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), files);
    folder
}

fn complaint(files: &[(&str, Vec<u8>)]) -> String {
    let message = DataSet::load(folder_with(files).path())
        .unwrap_err()
        .to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn an_image_folder_is_read_in_the_order_of_names() {
    let mut files = pictures();
    files.extend([("train/dog/.DS_Store", vec![0]), ("LICENSE", vec![1])]);
    let folder = folder_with(&files);
    let mut told = Vec::new();
    let data = DataSet::load_with(folder.path(), &mut |progress| told.push(progress)).unwrap();
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(
        (data.classes, data.class_names.as_slice()),
        (2, ["cat".to_owned(), "dog".to_owned()].as_slice())
    );
    assert_eq!(tints(&data.train), [(2, 0), (1, 1), (3, 1)]);
    assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
    let columns: Vec<f32> = [0, 1, 2, 0, 1, 2]
        .iter()
        .map(|&x| x as f32 / 255.0)
        .collect();
    assert_eq!(data.train.sample(0)[..6], columns);
    assert_eq!(
        told.last(),
        Some(&LoadProgress {
            samples: 5,
            total: Some(5)
        })
    );
}

#[test]
fn archives_hold_the_same_and_keep_their_order() {
    for (name, contents) in [
        ("a.tar", archive(&pictures())),
        ("a.tar.gz", gzip(&archive(&pictures()))),
    ] {
        let folder = folder_with(&[(name, contents), ("notes.txt", vec![])]);
        let data = DataSet::load(folder.path()).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"]);
        assert_eq!(tints(&data.train), [(1, 1), (2, 0), (3, 1)]);
        assert_eq!(tints(&data.test), [(4, 0), (5, 1)]);
        assert_eq!(
            data.sha256,
            DataSet::load(&folder.path().join(name)).unwrap().sha256
        );
    }
}

#[test]
fn more_images_than_one_batch_keep_their_order() {
    let names: Vec<String> = (0..1100)
        .map(|index| format!("train/{}/{index:04}.png", index % 7))
        .collect();
    let mut files: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), coloured((index % 250) as u8)))
        .collect();
    files.push(("test/3/0.png", coloured(9)));
    let folder = folder_with(&[("a.tar", archive(&files))]);
    let mut told = Vec::new();
    let data =
        DataSet::load_with(folder.path(), &mut |progress| told.push(progress.samples)).unwrap();
    assert_eq!((data.train.len(), data.classes), (1100, 7));
    let wanted: Vec<(u8, u8)> = (0..1100)
        .map(|index| ((index % 250) as u8, (index % 7) as u8))
        .collect();
    assert_eq!(tints(&data.train), wanted);
    assert!(told.len() > 3 && told.is_sorted(), "{told:?}");
}

#[test]
fn jpeg_images_and_grey_ones() {
    let jpeg = encoded(
        GrayImage::from_pixel(8, 8, image::Luma([200])),
        ImageFormat::Jpeg,
    );
    let files = [
        ("train/a/1.jpg", jpeg.clone()),
        ("train/b/1.JPEG", jpeg.clone()),
        ("test/a/1.jpg", jpeg),
    ];
    let data = DataSet::load(folder_with(&files).path()).unwrap();
    assert_eq!(data.train.shape, [1, 8, 8]);
    assert!(
        data.train
            .values
            .iter()
            .all(|value| (value - 200.0 / 255.0).abs() < 0.02)
    );
}

#[test]
fn grey_images_among_coloured_ones_become_coloured() {
    let files = [
        ("train/a/1.png", grey(51)),
        ("train/a/2.png", coloured(7)),
        ("train/a/3.png", grey(255)),
        ("test/a/1.png", coloured(8)),
    ];
    let data = DataSet::load(folder_with(&files).path()).unwrap();
    assert_eq!(data.train.shape, [3, 2, 3]);
    assert_eq!(data.train.sample(0), [0.2; 18]);
    assert_eq!(tints(&data.train), [(51, 0), (7, 0), (255, 0)]);
}

#[test]
fn image_folders_that_cannot_be_used_are_named() {
    let with = |name: &'static str, contents: Vec<u8>| {
        let mut files = pictures();
        files.push((name, contents));
        complaint(&files)
    };
    let larger = encoded(RgbImage::new(4, 2), ImageFormat::Png);
    let message = with("train/dog/9.png", larger);
    assert!(
        message.contains("train/dog/9.png: is 4 x 2 pixels, those before it are 3 x 2"),
        "{message}"
    );
    let message = with("train/dog/9.png", coloured(1)[..40].to_vec());
    assert!(
        message.contains("train/dog/9.png: ") && message.contains("png or jpeg"),
        "{message}"
    );
    let message = with("train/dog/9.gif", vec![1]);
    assert!(
        message.contains("9.gif: is neither a png nor a jpeg file"),
        "{message}"
    );
    let message = with("train/9.png", coloured(1));
    assert!(
        message.contains("9.png: lies in no class's folder"),
        "{message}"
    );
    let message = with("test/bird/9.png", coloured(1));
    assert!(message.contains("no class \"bird\""), "{message}");

    let folder = folder_with(&pictures());
    fs::create_dir(folder.path().join("train/bird")).unwrap();
    let message = DataSet::load(folder.path()).unwrap_err().to_string();
    assert!(message.contains("train/bird: has no images"), "{message}");
}

#[test]
fn images_may_come_without_labels() {
    let files = || -> Vec<(&str, Vec<u8>)> {
        vec![
            ("train/b.png", coloured(1)),
            ("train/a.png", coloured(2)),
            ("test/c.png", coloured(3)),
        ]
    };
    let unlabelled = |files: &[(&str, Vec<u8>)]| DataSet::load(folder_with(files).path()).unwrap();
    let folder = unlabelled(&files());
    let tar = unlabelled(&[("a.tar.gz", gzip(&archive(&files())))]);
    for data in [&folder, &tar] {
        assert_eq!((data.train.len(), data.test.len(), data.classes), (2, 1, 0));
        assert!(!data.is_labelled() && data.train.labels.is_empty());
        assert_eq!(data.test.sample(0), folder.test.sample(0));
    }
    assert_eq!(tint(folder.train.sample(0)), 2, "in the order of the names");

    // These have no split.
    let names: Vec<String> = (10..32).map(|at| format!("{at}.png")).collect();
    let flat: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (name.as_str(), coloured(at as u8)))
        .collect();
    let data = unlabelled(&flat);
    assert_eq!((data.train.len(), data.test.len()), (20, 2));
    assert_eq!(
        (tint(data.test.sample(0)), tint(data.test.sample(1))),
        (9, 19)
    );
    let message = complaint(&flat[..9]);
    assert!(
        message.contains("has 9 samples, at least 10 are needed"),
        "{message}"
    );

    let mut mixed = files();
    mixed.push(("train/cat/1.png", coloured(4)));
    let message = complaint(&mixed);
    assert!(
        message.contains("train/a.png: lies in no class's folder"),
        "{message}"
    );
    let message = complaint(&[("a.tar", archive(&mixed))]);
    assert!(
        message.contains("cat/1.png: lies in a class's folder, images before it in none"),
        "{message}"
    );
}

#[test]
fn archives_that_cannot_be_used_are_named() {
    let whole = gzip(&archive(&pictures()));
    for cut in [20, whole.len() / 2, whole.len() - 6] {
        let message = complaint(&[("a.tar.gz", whole[..cut].to_vec())]);
        assert!(
            message.contains("a.tar.gz: truncated or damaged"),
            "{message}"
        );
    }
    let message = complaint(&[("a.tar", archive(&pictures())[..600].to_vec())]);
    assert!(message.contains("a.tar: truncated or damaged"), "{message}");
    let mut files = pictures();
    files.push(("train/bird/", vec![]));
    let message = complaint(&[("a.tar", archive(&files))]);
    assert!(
        message.contains("a.tar/train/bird: has no images"),
        "{message}"
    );
    let message = complaint(&[("a.tar", archive(&[("notes.txt", vec![1])]))]);
    assert!(message.contains("a.tar/train: has 0 samples"), "{message}");
}

/// A record of CIFAR's: labels, then pixels that are all `light`.
fn record(labels: &[u8], light: u8) -> Vec<u8> {
    [labels, &[light; 3072]].concat()
}

#[test]
fn cifar_10_has_five_training_files() {
    let files: Vec<(String, Vec<u8>)> = (1..=5)
        .map(|file| {
            (
                format!("cifar-10-batches-bin/data_batch_{file}.bin"),
                record(&[file], file * 51),
            )
        })
        .collect();
    let mut files: Vec<(&str, Vec<u8>)> = files
        .iter()
        .map(|(name, contents)| (name.as_str(), contents.clone()))
        .collect();
    files.push((
        "cifar-10-batches-bin/test_batch.bin",
        [record(&[9], 0), record(&[0], 255)].concat(),
    ));
    let folder = folder_with(&files);
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!(
        (data.train.len(), data.test.len(), data.classes),
        (5, 2, 10)
    );
    assert_eq!(data.train.shape, [3, 32, 32]);
    assert_eq!(data.train.labels, [1, 2, 3, 4, 5]);
    assert_eq!(data.train.sample(4), [1.0; 3072]);

    let test = folder.path().join("cifar-10-batches-bin/test_batch.bin");
    fs::write(&test, &record(&[9], 0)[1..]).unwrap();
    let message = DataSet::load(folder.path()).unwrap_err().to_string();
    assert!(
        message.contains("test_batch.bin: has 3072 bytes"),
        "{message}"
    );
    fs::write(&test, record(&[10], 0)).unwrap();
    let message = DataSet::load(folder.path()).unwrap_err().to_string();
    assert!(message.contains("record 0 has label 10"), "{message}");
}

#[test]
fn cifar_100_counts_the_fine_labels() {
    let names: String = (0..100).map(|class| format!("class{class}\n")).collect();
    let files = [
        (
            "train.bin",
            [record(&[19, 99], 1), record(&[0, 7], 2)].concat(),
        ),
        ("test.bin", record(&[3, 4], 3)),
        ("fine_label_names.txt", names.into_bytes()),
    ];
    let data = DataSet::load(folder_with(&files).path()).unwrap();
    assert_eq!(
        (data.train.labels.as_slice(), data.classes),
        ([99, 7].as_slice(), 100)
    );
    assert_eq!(data.class_names[99], "class99");
}

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

#[test]
fn what_is_no_data_set_is_told_the_formats() {
    for files in [vec![("notes.txt", vec![1])], vec![("a.tar", vec![])]] {
        let message = complaint(&files);
        for format in [
            "train-images-idx3-ubyte",
            "train/CLASS",
            "data_batch_1.bin",
            ".npz",
            ".safetensors",
            ".tar",
        ] {
            assert!(message.contains(format), "{message}");
        }
    }
    let message = complaint(&[("a.npz", vec![]), ("b.tar", vec![])]);
    assert!(
        message.contains("has a.npz and b.tar: which is meant?"),
        "{message}"
    );
}

#[test]
fn class_names_may_stand_beside_idx_files() {
    let folder = tempfile::tempdir().unwrap();
    common::write_quarters(folder.path(), 40, 10);
    fs::write(folder.path().join("classes.txt"), "a\nb\nc\nd\n").unwrap();
    assert_eq!(
        DataSet::load(folder.path()).unwrap().class_names,
        ["a", "b", "c", "d"]
    );
    fs::write(folder.path().join("classes.txt"), "a\nb\n").unwrap();
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!((data.class_names.len(), data.classes), (0, 4));
}
