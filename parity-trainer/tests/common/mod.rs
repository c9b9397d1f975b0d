//! Writes small IDX data sets, and runs the command.
#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "test helpers; each test uses some"
)]

pub mod script;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const SIDE: usize = 16;

pub fn idx(dims: &[usize], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    for &dim in dims {
        file.extend((dim as u32).to_be_bytes());
    }
    file.extend(bytes);
    file
}

pub fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// Four classes: a bright quarter of the image, in noise. The training set is gzip-compressed, the
/// test set is not.
pub fn write_quarters(folder: &Path, train: usize, test: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (split, count) in [("train", train), ("t10k", test)] {
        let labels: Vec<u8> = (0..count).map(|_| rng.random_range(0..4)).collect();
        let mut pixels = Vec::new();
        for &label in &labels {
            for y in 0..SIDE {
                for x in 0..SIDE {
                    let quarter = u8::from(x >= SIDE / 2) + 2 * u8::from(y >= SIDE / 2);
                    let light = if quarter == label { 160 } else { 0 };
                    pixels.push(light + rng.random_range(0..90u8));
                }
            }
        }
        let images = idx(&[count, SIDE, SIDE], &pixels);
        let labels = idx(&[count], &labels);
        let (images, labels, end) = match split {
            "train" => (gzip(&images), gzip(&labels), ".gz"),
            _ => (images, labels, ""),
        };
        fs::write(
            folder.join(format!("{split}-images-idx3-ubyte{end}")),
            images,
        )
        .unwrap();
        fs::write(
            folder.join(format!("{split}-labels-idx1-ubyte{end}")),
            labels,
        )
        .unwrap();
    }
}

/// `parity-trainer` on one thread, in `folder`; arguments are separated by blanks.
pub fn command(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parity-trainer"));
    command
        .current_dir(folder)
        .args(["--threads", "1"])
        .args(line.split_whitespace());
    command
}

pub fn trainer(folder: &Path, line: &str) -> Output {
    command(folder, line).output().unwrap()
}

/// Runs a command that has to succeed; what it wrote to standard output.
pub fn succeed(folder: &Path, line: &str) -> String {
    let output = trainer(folder, line);
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that has to succeed; what it wrote to standard error.
pub fn succeed_saying(folder: &Path, line: &str) -> String {
    let output = trainer(folder, line);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {message}");
    message
}

/// Runs a command that has to refuse its input (exit code 2); all that it wrote to standard error.
pub fn complaint(folder: &Path, line: &str) -> String {
    let output = trainer(folder, line);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    message
}

/// The same of a command that shows progress before: the last line.
pub fn last_complaint(folder: &Path, line: &str) -> String {
    complaint(folder, line).lines().last().unwrap().to_owned()
}
