//! Targets for fuzzers. Plain functions that panic if something does not hold, so
//! that a test without a nightly compiler replays the corpus, and changes of it, by
//! the same code (`tests/abuse/replay.rs`).

use std::path::Path;

use bytes::Bytes;
use parapet_frontend::config::FrontendConfig;
use parapet_open_inference::{Encoding, InferRequest, decode_request, encode_request};

/// A JSON body: no panic, no memory beyond what its length accounts for, and what is read is
/// written again to the same.
pub fn request(data: &[u8]) {
    let Ok(request) = decode_request(Bytes::copy_from_slice(data), None) else {
        return;
    };
    // The shortest element is one character and its comma, the longest eight bytes.
    assert!(held(&request) <= 8 * data.len(), "{} bytes from {}", held(&request), data.len());
    again(&request, Encoding::Binary);
}

/// A body with the binary extension; the first two bytes are the length of its header.
pub fn binary(data: &[u8]) {
    let Some((length, body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let header_length = usize::from(u16::from_be_bytes(*length));
    let Ok(request) = decode_request(Bytes::copy_from_slice(body), Some(header_length)) else {
        return;
    };
    assert!(header_length <= body.len(), "a header beyond its body was taken");
    assert!(held(&request) <= 8 * body.len(), "{} bytes from {}", held(&request), body.len());
    again(&request, Encoding::Binary);
}

/// A configuration file: taken, or refused in one line. Names are not looked up, nor files.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(error) = FrontendConfig::check_text(Path::new("parapet.toml"), text) {
        let said = error.to_string();
        assert!(said.starts_with("parapet.toml: ") && !said.contains('\n'), "{said:?}");
    }
}

fn held(request: &InferRequest) -> usize {
    request.inputs.iter().map(|tensor| tensor.data.len()).sum()
}

fn again(request: &InferRequest, encoding: Encoding) {
    let Ok(encoded) = encode_request(request, encoding) else {
        return;
    };
    let read =
        decode_request(encoded.body, encoded.header_length).expect("what was written is read");
    let parts = |request: &InferRequest| {
        let inputs = request.inputs.iter();
        inputs
            .map(|t| (t.name.clone(), t.datatype, t.shape.clone(), t.data.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(parts(&read), parts(request));
}
