//! Every unusable file is named, with what is wrong and what to do.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::Path;

use common::{SIDE, gzip, idx, write_quarters};
use parity_trainer::data::DataSet;

fn complaint(spoil: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 20, 10);
    spoil(folder.path());
    DataSet::load(folder.path()).unwrap_err().to_string()
}

#[test]
fn sound_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 20, 10);
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!(
        (data.train.len(), data.test.len(), data.classes),
        (20, 10, 4)
    );
    assert_eq!(data.train.shape, [1, SIDE, SIDE]);
    assert!(
        data.train
            .values
            .iter()
            .all(|value| (0.0..=1.0).contains(value))
    );
    assert_eq!(data.sha256.len(), 64);
    assert_eq!(data.sha256, DataSet::load(folder.path()).unwrap().sha256);
}

#[test]
fn samples_may_be_vectors() {
    let folder = tempfile::tempdir().unwrap();
    for (split, count) in [("train", 3), ("t10k", 2)] {
        let images = idx(&[count, 5], &vec![255; count * 5]);
        fs::write(
            folder.path().join(format!("{split}-images-idx2-ubyte")),
            images,
        )
        .unwrap();
        let labels = idx(&[count], &vec![1; count]);
        fs::write(
            folder.path().join(format!("{split}-labels-idx1-ubyte")),
            labels,
        )
        .unwrap();
    }
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!(data.train.shape, [5]);
    assert_eq!(data.train.sample(2), [1.0; 5]);
}

#[test]
fn images_may_come_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 20, 10);
    let labelled = DataSet::load(folder.path()).unwrap();
    fs::write(folder.path().join("classes.txt"), "a\nb\nc\nd\n").unwrap();
    for file in ["train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!(
        (data.train.len(), data.test.len(), data.classes),
        (20, 10, 0)
    );
    assert_eq!(
        (&data.train.values, data.train.labels.len()),
        (&labelled.train.values, 0)
    );
    assert!(data.class_names.is_empty() && data.sha256 != labelled.sha256);
}

#[test]
fn a_missing_file_is_named() {
    let message =
        complaint(|folder| fs::remove_file(folder.join("t10k-labels-idx1-ubyte")).unwrap());
    assert!(
        message.contains("no t10k-labels-idx1-ubyte[.gz]"),
        "{message}"
    );
}

#[test]
fn a_truncated_gzip_file_is_named() {
    let message = complaint(|folder| {
        let path = folder.join("train-images-idx3-ubyte.gz");
        let contents = fs::read(&path).unwrap();
        fs::write(&path, &contents[..contents.len() / 2]).unwrap();
    });
    assert!(
        message.contains("train-images-idx3-ubyte.gz: truncated or damaged gzip file"),
        "{message}"
    );
}

#[test]
fn a_truncated_plain_file_is_named() {
    let message = complaint(|folder| {
        let path = folder.join("t10k-images-idx3-ubyte");
        let contents = fs::read(&path).unwrap();
        fs::write(&path, &contents[..contents.len() - 1]).unwrap();
    });
    assert!(
        message
            .contains("t10k-images-idx3-ubyte: its header [10, 16, 16] announces 2560 bytes, 2559"),
        "{message}"
    );
}

#[test]
fn a_file_of_another_kind_is_named() {
    let message = complaint(|folder| {
        fs::write(folder.join("t10k-images-idx3-ubyte"), b"PK\x03\x04..").unwrap()
    });
    assert!(
        message.contains("t10k-images-idx3-ubyte: not an IDX file"),
        "{message}"
    );
    assert!(message.contains("[50, 4b, 03, 04]"), "{message}");
}

#[test]
fn a_header_that_overflows_is_refused() {
    let huge = idx(&[u32::MAX as usize; 5], &[]);
    let message =
        complaint(|folder| fs::write(folder.join("t10k-images-idx3-ubyte"), &huge).unwrap());
    assert!(message.contains("announces"), "{message}");
}

#[test]
fn counts_that_differ_name_both_files() {
    let message = complaint(|folder| {
        fs::write(
            folder.join("train-labels-idx1-ubyte.gz"),
            gzip(&idx(&[19], &[0; 19])),
        )
        .unwrap();
    });
    assert!(
        message.contains("train-images-idx3-ubyte.gz has 20 samples"),
        "{message}"
    );
    assert!(
        message.contains("train-labels-idx1-ubyte.gz has 19 labels"),
        "{message}"
    );
}
