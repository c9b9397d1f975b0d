//! Files beside a graph (the format's "external data").

use std::collections::BTreeSet;

/// First bytes in protobuf of the entry `key: "location", value: ..` of a tensor's `external_data`.
const LOCATION: &[u8] = b"\x0a\x08location\x12";

/// Names of the files that the graph of an ONNX file keeps weights in, relative to its folder. A
/// text that only looks like one is returned, too.
pub fn external_data(onnx: &[u8]) -> BTreeSet<String> {
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
}
