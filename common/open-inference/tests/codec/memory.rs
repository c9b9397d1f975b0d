//! Memory that is asked for before contents are decoded.

use super::*;

#[test]
fn copies_of_escaped_text_are_held_while_they_are_read() {
    let held = |data: &str| {
        let mut asked = Asked {
            max_contents: 1000,
            memory: 1000,
            held: Vec::new(),
        };
        let body = Bytes::from(input("BYTES", "[1]", data));
        decode_request_within(body, None, &mut asked).unwrap();
        asked.held
    };
    assert_eq!(held(r#"["nnn"]"#), [11]);
    assert_eq!(held(r#"["\n\n"]"#), [12 + 8]);
}

/// Notes what is asked for, up to a limit.
struct Asked {
    max_contents: usize,
    memory: usize,
    held: Vec<usize>,
}

impl Room for Asked {
    fn max_contents(&self) -> usize {
        self.max_contents
    }

    fn hold(&mut self, bytes: usize) -> bool {
        self.held.push(bytes);
        bytes <= self.memory
    }
}

#[test]
fn decoded_contents_are_held_before_they_are_made() {
    let two = r#"{"inputs":[
        {"name":"a","datatype":"FP64","shape":[3],"data":[1,1,1]},
        {"name":"b","datatype":"BYTES","shape":[2],"data":["x",""]}]}"#;
    let decode = |max_contents, memory| {
        let mut asked = Asked {
            max_contents,
            memory,
            held: Vec::new(),
        };
        let body = Bytes::copy_from_slice(two.as_bytes());
        (decode_request_within(body, None, &mut asked), asked.held)
    };
    let (request, held) = decode(100, 100);
    let made: usize = request
        .unwrap()
        .inputs
        .iter()
        .map(|tensor| tensor.data.len())
        .sum();
    // Two empty strings at least, and the text of the array.
    assert_eq!((made, held), (24 + 9, vec![24, 24 + 8 + 8]));
    assert!(matches!(decode(100, 23), (Err(ProtocolError::NoMemory), held) if held == [24]));
    let (refused, held) = decode(23, 100);
    assert!(
        matches!(
            refused,
            Err(ProtocolError::Contents {
                bytes: 24,
                limit: 23,
                ..
            })
        ) && held.is_empty()
    );
    assert!(
        matches!(
            decode(39, 100),
            (Err(ProtocolError::Contents { bytes: 40, .. }), _)
        ),
        "all together"
    );
}

#[test]
fn a_claimed_shape_holds_no_more_than_its_text_can_have() {
    let mut asked = Asked {
        max_contents: usize::MAX,
        memory: usize::MAX,
        held: Vec::new(),
    };
    let body = Bytes::from(input("FP64", "[1000000000]", "[1,1,1]"));
    decode_request_within(body, None, &mut asked).unwrap_err();
    assert_eq!(asked.held, [8 * 4]);
}

#[test]
fn tensors_that_are_copied_out_of_their_body_are_held_beside_it() {
    let header = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}"#;
    let mut asked = Asked {
        max_contents: 0,
        memory: 100,
        held: Vec::new(),
    };
    let body = Bytes::from([header.as_bytes(), &[0; 4]].concat());
    decode_request_within(body, Some(header.len()), &mut asked).unwrap();
    assert_eq!(asked.held, [4]);
}
