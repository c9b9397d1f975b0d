//! Memory that is asked for before contents are decoded.

use super::*;

#[test]
fn copies_of_escaped_text_are_held_while_they_are_read() {
    let held = |data: &str| {
        let (decoded, held) = decode_within(input("BYTES", "[1]", data), None, 1000, 1000);
        decoded.unwrap();
        held
    };
    assert_eq!(held(r#"["nnn"]"#), [11]);
    assert_eq!(held(r#"["\n\n"]"#), [12 + 8]);
}

/// Notes what is asked for, up to a limit.
struct Asked {
    memory: usize,
    held: Vec<usize>,
}

/// Decodes within limits on contents and memory; also what was asked for.
fn decode_within(
    body: impl Into<Bytes>,
    header_length: Option<usize>,
    max_contents: usize,
    memory: usize,
) -> (Result<InferRequest, ProtocolError>, Vec<usize>) {
    let held = Vec::new();
    let mut asked = Asked { memory, held };
    let decoded = decode_request_within(body.into(), header_length, max_contents, &mut asked);
    (decoded, asked.held)
}

impl Room for Asked {
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.held.push(bytes);
        let holds = bytes <= self.memory;
        holds.then_some(()).ok_or(ProtocolError::NoMemory)
    }
}

#[test]
fn decoded_contents_are_held_before_they_are_made() {
    let two = r#"{"inputs":[
        {"name":"a","datatype":"FP64","shape":[3],"data":[1,1,1]},
        {"name":"b","datatype":"BYTES","shape":[2],"data":["x",""]}]}"#;
    let decode = |max_contents, memory| decode_within(two, None, max_contents, memory);
    let (request, held) = decode(100, 100);
    let inputs = request.unwrap().inputs;
    let made: usize = inputs.iter().map(|tensor| tensor.data.len()).sum();
    // Two empty strings at least, and the text of the array.
    assert_eq!((made, held), (24 + 9, vec![24, 24 + 8 + 8]));
    let (refused, held) = decode(100, 23);
    assert!(matches!(refused.unwrap_err(), ProtocolError::NoMemory));
    assert_eq!(held, [24]);
    // All tensors together.
    for (limit, counted, asked) in [(23, 24, &[][..]), (39, 40, &[24])] {
        let (refused, held) = decode(limit, 100);
        let ProtocolError::Contents { bytes, limit: of } = refused.unwrap_err() else {
            panic!("other refusal");
        };
        assert_eq!((bytes, of, &held[..]), (counted, limit, asked));
    }
}

#[test]
fn a_claimed_shape_holds_no_more_than_its_text_can_have() {
    let body = input("FP64", "[1000000000]", "[1,1,1]");
    let (decoded, held) = decode_within(body, None, usize::MAX, usize::MAX);
    decoded.unwrap_err();
    assert_eq!(held, [8 * 4]);
}

#[test]
fn tensors_that_are_copied_out_of_their_body_are_held_beside_it() {
    let header = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}"#;
    let body = [header.as_bytes(), &[0; 4]].concat();
    let (decoded, held) = decode_within(body, Some(header.len()), 0, 100);
    decoded.unwrap();
    assert_eq!(held, [4]);
}
