//! Digests of models, with the weights that an ONNX file keeps in files beside it (the format's
//! "external data").

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use sha2::Sha256;

use crate::{Result, TrainError};

/// First bytes in protobuf of the entry `key: "location", value: ..` of a tensor's `external_data`.
const LOCATION: &[u8] = b"\x0a\x08location\x12";

/// A model is its file, and what an ONNX file keeps beside itself.
pub(super) fn hash_model(file: &Path, hash: &mut Sha256) -> Result<()> {
    hash_file(file, hash)?;
    if file.extension().is_some_and(|extension| extension == "onnx") {
        let graph = fs::read(file).map_err(TrainError::read(file))?;
        for name in external_data(&graph) {
            let beside = file.with_file_name(&name);
            if beside.is_file() {
                hash_file(&beside, hash)?;
            }
        }
    }
    Ok(())
}

fn hash_file(file: &Path, hash: &mut Sha256) -> Result<()> {
    let copied = File::open(file).and_then(|mut file| std::io::copy(&mut file, hash));
    copied.map(drop).map_err(TrainError::read(file))
}

/// The files that an ONNX file names, relative to its folder. What only looks like a name is one
/// more file to be looked for, and does no harm.
fn external_data(onnx: &[u8]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut rest = onnx;
    while let Some(at) = rest.windows(LOCATION.len()).position(|window| window == LOCATION) {
        rest = rest.get(at + LOCATION.len()..).unwrap_or_default();
        if let Some(name) = length_delimited(rest).and_then(|name| std::str::from_utf8(name).ok()) {
            files.insert(name.to_owned());
        }
    }
    files
}

/// A protobuf string: its length as a varint, its bytes.
fn length_delimited(bytes: &[u8]) -> Option<&[u8]> {
    let mut length = 0usize;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return bytes.get(index + 1..index + 1 + length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    fn entry(name: &str) -> Vec<u8> {
        let length = match name.len() {
            short @ ..128 => vec![short as u8],
            long => vec![(long & 0x7f) as u8 | 0x80, (long >> 7) as u8],
        };
        [LOCATION, &length, name.as_bytes()].concat()
    }

    #[test]
    fn every_file_beside_a_graph_is_found_once() {
        let long = "w".repeat(200);
        let parts = [entry("a.data"), entry(&long), vec![0; 9], entry("a.data")];
        let graph = [b"\x08\x07".to_vec(), parts.concat()].concat();
        let files = BTreeSet::from(["a.data".to_owned(), long]);
        assert_eq!(external_data(&graph), files);
        assert!(external_data(b"no such thing").is_empty());
        assert!(external_data(&entry("cut short")[..LOCATION.len() + 4]).is_empty());
    }

    /// Otherwise cached outputs of other weights would be taken for these.
    #[test]
    fn weights_beside_an_onnx_file_are_part_of_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("model.onnx");
        fs::write(&graph, entry("w.bin")).unwrap();
        let digests = ["one", "two"].map(|weights| {
            fs::write(folder.path().join("w.bin"), weights).unwrap();
            let mut hash = Sha256::new();
            hash_model(&graph, &mut hash).unwrap();
            hash.finalize()
        });
        assert_ne!(digests[0], digests[1]);
    }
}
