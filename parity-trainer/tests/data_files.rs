//! Every unusable file is named, with what is wrong and what to do.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;

use common::{SIDE, assert_has, gzip, idx, write_quarters};
use parity_trainer::data::DataSet;

fn sound() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_quarters(folder.path(), 20, 10);
    folder
}

#[test]
fn sound_files_are_read() {
    let folder = sound();
    let data = DataSet::load(folder.path()).unwrap();
    let counts = (data.train.len(), data.test.len(), data.classes);
    assert_eq!(counts, (20, 10, 4));
    assert_eq!(data.train.shape, [1, SIDE, SIDE]);
    let mut values = data.train.values.iter();
    assert!(values.all(|value| (0.0..=1.0).contains(value)));
    assert_eq!(data.sha256.len(), 64);
    assert_eq!(data.sha256, DataSet::load(folder.path()).unwrap().sha256);
}

#[test]
fn samples_may_be_vectors() {
    let folder = tempfile::tempdir().unwrap();
    common::write_vectors(folder.path(), |number| (number % 2) as u8);
    let data = DataSet::load(folder.path()).unwrap();
    assert_eq!(data.train.shape, [6]);
    let expected = [12, 13, 14, 15, 16, 17].map(|byte: u8| f32::from(byte) / 255.0);
    assert_eq!(data.train.sample(2), expected);
}

#[test]
fn images_may_come_without_labels() {
    let folder = sound();
    let labelled = DataSet::load(folder.path()).unwrap();
    fs::write(folder.path().join("classes.txt"), "a\nb\nc\nd\n").unwrap();
    for file in ["train-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let data = DataSet::load(folder.path()).unwrap();
    let counts = (data.train.len(), data.test.len(), data.classes);
    assert_eq!(counts, (20, 10, 0));
    assert_eq!(data.train.values, labelled.train.values);
    assert!(data.train.labels.is_empty());
    assert!(data.class_names.is_empty() && data.sha256 != labelled.sha256);
}

#[test]
fn unusable_file_is_named_with_what_is_wrong() {
    const IMAGES: &str = "t10k-images-idx3-ubyte";
    let zipped = "train-images-idx3-ubyte.gz";
    let labels = "train-labels-idx1-ubyte.gz";
    let cut = |name: &str, part: fn(usize) -> usize| {
        let contents = fs::read(sound().path().join(name)).unwrap();
        Some(contents[..part(contents.len())].to_vec())
    };
    let huge = idx(&[u32::MAX as usize; 5], &[]);
    let fewer = gzip(&idx(&[19], &[0; 19]));
    for (name, contents, says) in [
        ("t10k-labels-idx1-ubyte", None, vec!["no t10k-labels-idx1-ubyte[.gz]"]),
        (
            zipped,
            cut(zipped, |length| length / 2),
            vec!["train-images-idx3-ubyte.gz: truncated or damaged gzip file"],
        ),
        (
            IMAGES,
            cut(IMAGES, |length| length - 1),
            vec!["t10k-images-idx3-ubyte: its header [10, 16, 16] announces 2560 bytes, 2559"],
        ),
        (
            IMAGES,
            Some(b"PK\x03\x04..".to_vec()),
            vec!["t10k-images-idx3-ubyte: not an IDX file", "[50, 4b, 03, 04]"],
        ),
        (IMAGES, Some(huge), vec!["announces"]),
        (
            labels,
            Some(fewer),
            vec![
                "train-images-idx3-ubyte.gz has 20 samples",
                "train-labels-idx1-ubyte.gz has 19 labels",
            ],
        ),
    ] {
        let folder = sound();
        let path = folder.path().join(name);
        match contents {
            Some(contents) => fs::write(&path, contents),
            None => fs::remove_file(&path),
        }
        .unwrap();
        assert_has(&DataSet::load(folder.path()).unwrap_err().to_string(), &says);
    }
}
