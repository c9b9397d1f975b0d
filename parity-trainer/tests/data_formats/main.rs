//! Data in every format that is read give the same samples, and what cannot be used is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod arrays;
#[path = "../common/mod.rs"]
mod common;
mod images;

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use common::gzip;
use image::{DynamicImage, GrayImage, ImageFormat, RgbImage};
use parity_trainer::data::{DataSet, Samples};

/// Names and contents.
type Files<'a> = Vec<(&'a str, Vec<u8>)>;

fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        let contents = contents.as_slice();
        tar.append_data(&mut header, name, contents).unwrap();
    }
    tar.into_inner().unwrap()
}

fn folder_with(files: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    folder
}

fn load(files: &[(&str, Vec<u8>)]) -> DataSet {
    DataSet::load(folder_with(files).path()).unwrap()
}

/// Asserts that the data at `path` are refused in one line that has all of `parts`, which `|`
/// separates.
fn assert_refused(path: &Path, parts: &str) {
    let message = DataSet::load(path).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts.split('|') {
        assert!(message.contains(part), "{part}: {message}");
    }
}

fn assert_files_refused(files: &[(&str, Vec<u8>)], parts: &str) {
    assert_refused(folder_with(files).path(), parts);
}

/// A record of CIFAR's: labels, then pixels that are all `light`.
fn record(labels: &[u8], light: u8) -> Vec<u8> {
    [labels, &[light; 3072]].concat()
}

#[test]
fn cifar_10_has_five_training_files() {
    let names = (1..=5).map(|file| format!("cifar-10-batches-bin/data_batch_{file}.bin"));
    let names: Vec<String> = names.collect();
    let train =
        names.iter().zip(1..).map(|(name, file)| (name.as_str(), record(&[file], file * 51)));
    let test = [record(&[9], 0), record(&[0], 255)].concat();
    let test = ("cifar-10-batches-bin/test_batch.bin", test);
    let folder = folder_with(&train.chain([test]).collect::<Files<'_>>());
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!((data.test.len(), data.classes), (2, 10));
    assert_eq!(data.train.shape, [3, 32, 32]);
    assert_eq!(data.train.labels, [1, 2, 3, 4, 5]);
    assert_eq!(data.train.sample(4), [1.0; 3072]);

    let test = folder.path().join("cifar-10-batches-bin/test_batch.bin");
    fs::write(&test, &record(&[9], 0)[1..]).unwrap();
    assert_refused(folder.path(), "test_batch.bin: has 3072 bytes");
    fs::write(&test, record(&[10], 0)).unwrap();
    assert_refused(folder.path(), "record 0 has label 10");
}

#[test]
fn cifar_100_counts_the_fine_labels() {
    let names: String = (0..100).map(|class| format!("class{class}\n")).collect();
    let train = [record(&[19, 99], 1), record(&[0, 7], 2)].concat();
    let data = load(&[
        ("train.bin", train),
        ("test.bin", record(&[3, 4], 3)),
        ("fine_label_names.txt", names.into_bytes()),
    ]);
    assert_eq!((data.train.labels, data.classes), (vec![99, 7], 100));
    assert_eq!(data.class_names[99], "class99");
}

#[test]
fn what_is_no_data_set_is_told_the_formats() {
    let formats = "train-images-idx3-ubyte|train/CLASS|data_batch_1.bin|.npz|.safetensors|.tar";
    assert_files_refused(&[("notes.txt", vec![1])], formats);
    assert_files_refused(&[("a.tar", vec![])], formats);
    let two = [("a.npz", vec![]), ("b.tar", vec![])];
    assert_files_refused(&two, "has a.npz and b.tar: which is meant?");
}

#[test]
fn class_names_may_stand_beside_idx_files() {
    let folder = tempfile::tempdir().unwrap();
    common::write_quarters(folder.path(), 40, 10);
    let with_names = |names: &str| {
        fs::write(folder.path().join("classes.txt"), names).unwrap();
        DataSet::load(folder.path()).unwrap()
    };
    assert_eq!(with_names("a\nb\nc\nd\n").class_names, ["a", "b", "c", "d"]);
    let data = with_names("a\nb\n");
    assert_eq!((data.class_names.len(), data.classes), (0, 4));
}
