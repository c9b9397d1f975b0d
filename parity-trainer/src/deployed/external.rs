//! Weights that an ONNX file keeps in files beside it (the format's "external data").

use std::collections::BTreeSet;

/// First bytes in protobuf of the entry `key: "location", value: ..` of a tensor's `external_data`.
const LOCATION: &[u8] = b"\x0a\x08location\x12";

/// The files that an ONNX file names, relative to its folder. What only looks like a name is one
/// more file to be looked for, and does no harm.
pub(super) fn external_data(onnx: &[u8]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut rest = onnx;
    while let Some(at) = rest
        .windows(LOCATION.len())
        .position(|window| window == LOCATION)
    {
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
    use super::*;

    fn entry(name: &str) -> Vec<u8> {
        let mut bytes = LOCATION.to_vec();
        let length = name.len();
        if length < 128 {
            bytes.push(length as u8);
        } else {
            bytes.extend([(length & 0x7f) as u8 | 0x80, (length >> 7) as u8]);
        }
        bytes.extend(name.as_bytes());
        bytes
    }

    #[test]
    fn every_file_is_found_once() {
        let long = "w".repeat(200);
        let graph = [
            b"\x08\x07".to_vec(),
            entry("a.data"),
            entry(&long),
            vec![0; 9],
            entry("a.data"),
        ]
        .concat();
        assert_eq!(
            external_data(&graph),
            BTreeSet::from(["a.data".to_owned(), long])
        );
        assert!(external_data(b"no such thing").is_empty());
        assert!(external_data(&entry("cut short")[..LOCATION.len() + 4]).is_empty());
    }
}
