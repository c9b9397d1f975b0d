//! Data in every format that is read give the same samples, and what cannot be used is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod arrays;
#[path = "../common/mod.rs"]
mod common;
mod images;

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use common::gzip;
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use parity_trainer::data::{DataSet, LoadProgress, Samples};

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
