//! The codec against the specification's examples, and what each kind of broken message is told.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use parapet_open_inference::{
    Datatype, Encoding, InferRequest, InferResponse, ProtocolError, RequestedOutput, Room, Tensor,
    decode_request, decode_request_within, decode_response, encode_request, encode_response,
};

fn decode(json: &str) -> Result<InferRequest, ProtocolError> {
    decode_request(Bytes::copy_from_slice(json.as_bytes()), None)
}

fn error(json: &str) -> String {
    decode(json).unwrap_err().to_string()
}

fn input(datatype: &str, shape: &str, data: &str) -> String {
    format!(
        r#"{{"inputs":[{{"name":"x","data":{data},"shape":{shape},"datatype":"{datatype}"}}]}}"#
    )
}

#[test]
fn the_specifications_example_is_read() {
    let request = decode(
        r#"{"id":"42","parameters":{"priority":3},
            "inputs":[
              {"name":"input0","shape":[2,2],"datatype":"UINT32","data":[1,2,3,4]},
              {"name":"input1","shape":[3],"datatype":"BOOL","data":[true,false,true]}],
            "outputs":[{"name":"output0"},{"name":"output1","parameters":{"binary_data":true}}]}"#,
    )
    .unwrap();
    assert_eq!(request.id.as_deref(), Some("42"));
    assert_eq!(request.parameters["priority"], 3);
    assert_eq!(
        &request.inputs[0].data[..],
        [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]
    );
    assert_eq!(&request.inputs[1].data[..], [1, 0, 1]);
    assert!(!request.wants_binary("output0"));
    assert!(request.wants_binary("output1"));
    assert!(!request.wants_output("output2"));
}

#[test]
fn parameters_are_scalars_and_not_many() {
    let with = |parameters: &str| decode(&format!(r#"{{"parameters":{parameters},"inputs":[]}}"#));
    let given = with(r#"{"a":1,"b":-2,"c":0.5,"d":"e","f":true,"g":null}"#)
        .unwrap()
        .parameters;
    assert_eq!(
        serde_json::to_string(&given).unwrap(),
        r#"{"a":1,"b":-2,"c":0.5,"d":"e","f":true,"g":null}"#
    );
    assert!(with("null").unwrap().parameters.is_empty());
    for nested in [r#"{"a":[]}"#, r#"{"a":{}}"#] {
        let refused = with(nested).unwrap_err().to_string();
        assert!(
            refused.contains("a string, a number or a boolean"),
            "{refused}"
        );
    }
    let many = |number: usize| {
        let entries: Vec<String> = (0..number).map(|i| format!("\"{i}\":0")).collect();
        with(&format!("{{{}}}", entries.join(",")))
    };
    assert_eq!(many(1024).unwrap().parameters.len(), 1024);
    let refused = many(1025).unwrap_err().to_string();
    assert!(refused.contains("more than 1024 parameters"), "{refused}");
    assert!(with("[]").is_err());
}

#[test]
fn nested_and_flat_data_mean_the_same() {
    let nested = decode(&input("FP32", "[2,3]", "[[1, 2.5, -3e2],[0.1, -0, 7]]")).unwrap();
    let flat = decode(&input("FP32", "[2,3]", "[1, 2.5, -3e2, 0.1, -0, 7]")).unwrap();
    assert_eq!(nested, flat);
    assert_eq!(
        nested.inputs[0].f32s().unwrap(),
        [1.0, 2.5, -300.0, 0.1, -0.0, 7.0]
    );
}

#[test]
fn fp16_is_numbers_in_json() {
    let read = decode(&input("FP16", "[4]", "[1, -0.5, 65504, 0.1]")).unwrap();
    let tenth = 0x2e66_u16; // the nearest to 0.1, which is 0.099975586
    let expected: Vec<u8> = [0x3c00, 0xb800, 0x7bff, tenth]
        .into_iter()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(read.inputs[0].data, expected);
    let written = encode_request(&read, Encoding::Json).unwrap();
    let text = String::from_utf8(written.body.to_vec()).unwrap();
    assert!(text.contains("[1.0,-0.5,65504.0,0.099975586]"), "{text}");
}

#[test]
fn binary_tensors_are_slices_of_the_body_unless_it_is_much_longer_than_they_are() {
    let request = InferRequest {
        inputs: vec![
            Tensor::from_f32("a", [1, 1000], &[1.5; 1000]).unwrap(),
            Tensor::new(
                "b",
                Datatype::Bytes,
                vec![1],
                Bytes::from_static(b"\x01\0\0\0z"),
            )
            .unwrap(),
        ],
        ..InferRequest::default()
    };
    let encoded = encode_request(&request, Encoding::Binary).unwrap();
    let header_length = encoded.header_length.unwrap();
    for (padding, lie_in_it) in [(0, true), (1500, true), (2500, false), (100_000, false)] {
        // Blanks are JSON, too.
        let (header, tensors) = encoded.body.split_at(header_length);
        let body = Bytes::from([header, &vec![b' '; padding], tensors].concat());
        let decoded = decode_request(body.clone(), Some(header_length + padding)).unwrap();
        assert_eq!(decoded, request);
        for tensor in &decoded.inputs {
            let lies_in_it = body.as_ptr_range().contains(&tensor.data.as_ptr());
            assert_eq!(
                lies_in_it, lie_in_it,
                "{padding} blanks: who keeps {} keeps all of them",
                tensor.name
            );
        }
    }
}

#[test]
fn an_output_says_itself_how_it_comes() {
    let mut request = InferRequest::default();
    request.ask_binary_outputs();
    request.outputs = vec![
        RequestedOutput {
            name: "a".into(),
            binary_data: None,
        },
        RequestedOutput {
            name: "b".into(),
            binary_data: Some(false),
        },
    ];
    let encoded = encode_request(&request, Encoding::Json).unwrap();
    let request = decode_request(encoded.body, encoded.header_length).unwrap();
    assert!(request.wants_binary("a"));
    assert!(!request.wants_binary("b"));
}

#[test]
fn a_response_may_mix_both_forms() {
    let response = InferResponse {
        model_name: "m".into(),
        model_version: Some("1".into()),
        outputs: vec![
            Tensor::from_f32("a", [2], &[1.0, 0.1]).unwrap(),
            Tensor::from_f32("b", [1], &[f32::NAN]).unwrap(),
        ],
        ..InferResponse::default()
    };
    let encoded = encode_response(&response, |name| name == "b").unwrap();
    assert!(encoded.body.starts_with(br#"{"model_name":"m","model_version":"1","outputs":[{"name":"a","datatype":"FP32","shape":[2],"data":[1.0,0.1]}"#));
    let decoded = decode_response(encoded.body, encoded.header_length).unwrap();
    assert_eq!(decoded.outputs, response.outputs);
    let refused = encode_response(&response, |_| false);
    assert!(matches!(refused, Err(ProtocolError::NoJsonForm { .. })));
}

#[test]
fn every_mistake_is_named() {
    assert!(error("{").contains("line 1 column 1"));
    assert!(error("{}").contains("missing field `inputs`"));
    assert!(
        error(r#"{"inputs":[{"name":"x","datatype":"FP32","data":[]}]}"#)
            .contains("missing field `shape`")
    );
    assert!(
        error(r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]}"#).contains("give either")
    );
    assert!(error(&input("FP31", "[1]", "[1]")).contains("unknown datatype \"FP31\""));
    assert!(error(&input("FP32", "[-1]", "[1]")).contains("-1"));
    assert!(error(&input("FP32", "[2]", "[1]")).contains("takes 2 elements, got 1"));
    assert!(error(&input("FP32", "[2]", "[1,2,3]")).contains("takes 2 elements, got 3"));
    assert!(error(&input("FP32", "[4294967296,4294967296]", "[]")).contains("too large"));
    assert!(error(&input("FP32", "[1000000000]", "[]")).contains("got 0"));
    assert!(error(&input("FP32", "[1]", "1")).contains("expected an array"));
    assert!(error(&input("FP32", "[1]", "[\"1\"]")).contains("a string, not a FP32"));
    assert!(error(&input("FP32", "[1]", "[null]")).contains("FP32"));
    assert!(error(&input("FP32", "[1]", "{}")).contains("FP32"));
    assert!(error(&input("FP32", "[1]", "[1e39]")).contains("element 0"));
    assert!(error(&input("FP32", "[1]", "[NaN]")).contains("line 1"));
    assert!(error(&input("UINT8", "[2]", "[255,256]")).contains("element 1 is 256, not a UINT8"));
    assert!(error(&input("INT8", "[1]", "[1.5]")).contains("INT8"));
    assert!(error(&input("BOOL", "[1]", "[2]")).contains("BOOL"));
    assert!(error(&input("UINT8", "[1]", "[true]")).contains("UINT8"));
    assert!(error(&input("BF16", "[1]", "[1]")).contains("binary form"));
    assert!(error(&input("FP16", "[1]", "[65520]")).contains("element 0 is 65520, not a FP16"));
    let shared = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"shared_memory_region":"r"}}]}"#;
    assert!(error(shared).contains("\"shared_memory_region\" is an extension that is not served"));
    let classes = r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":3}}]}"#;
    assert!(error(classes).contains("\"classification\" is an extension that is not served"));
    assert!(
        error(&input(
            "FP32",
            "[1]",
            &format!("{}1{}", "[".repeat(17), "]".repeat(17))
        ))
        .contains("nested")
    );
    assert!(
        decode(&input(
            "FP32",
            "[1]",
            &format!("{}1{}", "[".repeat(16), "]".repeat(16))
        ))
        .is_ok()
    );
}

#[test]
fn the_binary_part_must_be_used_up_exactly() {
    let header = |size: usize| {
        format!(
            r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","parameters":{{"binary_data_size":{size}}}}}]}}"#
        )
    };
    let decode = |size: usize, binary: usize, header_length: Option<usize>| {
        let header = header(size);
        let length = header_length.unwrap_or(header.len());
        decode_request(
            [header.into_bytes(), vec![0; binary]].concat().into(),
            Some(length),
        )
    };
    assert!(decode(4, 4, None).is_ok());
    assert!(matches!(
        decode(4, 3, None),
        Err(ProtocolError::BinaryTooShort { .. })
    ));
    assert!(matches!(
        decode(usize::MAX, 4, None),
        Err(ProtocolError::BinaryTooShort { .. })
    ));
    assert!(matches!(
        decode(4, 5, None),
        Err(ProtocolError::BinaryLeftOver { left: 1 })
    ));
    assert!(matches!(
        decode(8, 8, None),
        Err(ProtocolError::ByteCount { .. })
    ));
    assert!(matches!(
        decode(4, 4, Some(9999)),
        Err(ProtocolError::HeaderBeyondBody { .. })
    ));
    assert!(matches!(decode(4, 4, Some(7)), Err(ProtocolError::Json(_))));
    let without_length = decode_request(Bytes::from(header(4)), None);
    assert!(matches!(
        without_length,
        Err(ProtocolError::BinaryTooShort { .. })
    ));
}

/// Requests with `long` in each place that has text.
fn with_text(long: &str) -> Vec<String> {
    vec![
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP31","shape":[1],"data":[1]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP32","shape":[2],"data":[1]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"{long}","datatype":"FP32","shape":[1]}}]}}"#),
        input(long, "[1]", "[1]"),
        input("FP32", &format!("\"{long}\""), "[1]"),
        input("FP32", &format!("[\"{long}\"]"), "[1]"),
        input("FP32", "[1]", &format!("[\"{long}\"]")),
        input("FP32", "[1]", &format!("\"{long}\"")),
        format!(r#"{{"inputs":"{long}"}}"#),
        format!(r#"{{"inputs":["{long}"]}}"#),
        format!(r#"{{"inputs":[],"outputs":"{long}"}}"#),
        format!(
            r#"{{"inputs":[],"outputs":[{{"name":"{long}","parameters":{{"classification":1}}}}]}}"#
        ),
        format!(r#"{{"inputs":[],"outputs":[{{"name":"y","parameters":"{long}"}}]}}"#),
        format!(r#"{{"inputs":[],"parameters":"{long}"}}"#),
        format!(r#"{{"inputs":[],"parameters":{{"{long}":[]}}}}"#),
        format!(r#""{long}""#),
    ]
}

#[test]
fn an_error_is_short_whatever_text_its_message_has() {
    for character in ["\u{200b}", "\\u0007", "x", "ä"] {
        for length in [300, 100_000] {
            for body in with_text(&character.repeat(length)) {
                let refused = error(&body);
                assert!(
                    refused.len() < 5000,
                    "{} bytes of {}",
                    refused.len(),
                    &body[..70]
                );
                assert!(refused.chars().count() < 2500, "{refused}");
            }
        }
    }
}

#[test]
fn a_long_text_is_refused_by_its_length_wherever_it_is() {
    for body in with_text(&"x".repeat(100_000)) {
        let refused = error(&body);
        let is_data = refused.contains("\"data\" is not valid");
        assert!(
            refused.contains("a text of 100000 bytes") || is_data,
            "{}: {refused}",
            &body[..70]
        );
    }
}

#[test]
fn an_error_keeps_the_place_of_a_mistake_behind_a_long_text() {
    let refused = error(&input("FP32", &format!("\"{}\"", "x".repeat(300)), "[1]"));
    assert!(
        refused.contains("invalid type: string") && refused.ends_with("column 344"),
        "{refused}"
    );
}

#[test]
fn a_text_beyond_four_kilobytes_is_refused_where_it_would_be_copied() {
    let long = |length: usize| "x".repeat(length);
    let id = |length| decode(&format!(r#"{{"inputs":[],"id":"{}"}}"#, long(length)));
    assert_eq!(id(4096).unwrap().id.unwrap().len(), 4096);
    assert!(
        id(4097)
            .unwrap_err()
            .to_string()
            .contains("a text of 4097 bytes; at most 4096")
    );
    let parameter = |length| {
        decode(&format!(
            r#"{{"inputs":[],"parameters":{{"a":"{}"}}}}"#,
            long(length)
        ))
    };
    assert!(parameter(4096).is_ok() && parameter(4097).is_err());
    let element = input("BYTES", "[1]", &format!("[\"{}\"]", long(100_000)));
    assert_eq!(
        decode(&element).unwrap().inputs[0].data.len(),
        100_004,
        "contents are no names"
    );
}

#[test]
fn lists_and_shapes_are_refused_while_they_are_read() {
    let shape = |axes: usize| {
        decode(&input(
            "FP32",
            &format!("[{}]", vec!["1"; axes].join(",")),
            "[1]",
        ))
    };
    assert_eq!(shape(16).unwrap().inputs[0].shape, [1; 16]);
    for axes in [17, 1_000_000] {
        let refused = shape(axes).unwrap_err().to_string();
        assert!(
            refused.contains("more than 16 axes") && refused.len() < 200,
            "{refused}"
        );
    }
    let tensor = r#"{"name":"x","datatype":"FP32","shape":[1],"data":[1]}"#;
    let inputs = |number: usize| {
        decode(&format!(
            r#"{{"inputs":[{}]}}"#,
            vec![tensor; number].join(",")
        ))
    };
    assert_eq!(inputs(1024).unwrap().inputs.len(), 1024);
    assert!(
        inputs(1025)
            .unwrap_err()
            .to_string()
            .contains("a list of more than 1024")
    );
    let outputs = vec![r#"{"name":""}"#; 1025].join(",");
    let refused = error(&format!(r#"{{"inputs":[],"outputs":[{outputs}]}}"#));
    assert!(refused.contains("a list of more than 1024"), "{refused}");
}

#[test]
fn a_long_header_is_refused_if_it_is_deep() {
    let with = |unknown: &str| decode(&format!(r#"{{"inputs":[],"unknown":{unknown}}}"#));
    let padding = "x".repeat(100_000);
    let nested = |depth: usize| format!("{}\"{padding}\"{}", "[".repeat(depth), "]".repeat(depth));
    assert!(with(&nested(63)).is_ok());
    assert!(matches!(
        with(&nested(64)),
        Err(ProtocolError::Deep { limit: 64 })
    ));
    let text = format!(r#"[[["{}\"{}"]]]"#, "[".repeat(100), "{".repeat(100_000));
    assert!(with(&text).is_ok(), "brackets in a text are no depth");
    let side_by_side = vec!["[{}]"; 50_000].join(",");
    assert!(with(&format!("[{side_by_side}]")).is_ok());
}

#[test]
fn long_text_is_refused_unread_except_in_tensor_data() {
    let escapes = r"\u0007".repeat(100_000);
    let name = format!(r#"{{"inputs":[{{"name":"{escapes}"}}]}}"#);
    let refused = decode(&name).unwrap_err();
    assert!(
        matches!(
            refused,
            ProtocolError::LongText {
                length: 600_000,
                limit: 4096
            }
        ),
        "{refused}"
    );
    let key = format!(r#"{{"inputs":[],"parameters":{{"{escapes}":1}}}}"#);
    assert!(matches!(decode(&key), Err(ProtocolError::LongText { .. })));
    let element = input("BYTES", "[1]", &format!("[\"{escapes}\"]"));
    assert_eq!(decode(&element).unwrap().inputs[0].data.len(), 100_004);
}

#[test]
fn long_numbers_are_refused_unread() {
    let digits = "9".repeat(100_000);
    for long in [
        digits.clone(),
        format!("-{digits}"),
        format!("0.{digits}"),
        format!("1e{digits}"),
    ] {
        for body in [
            long.clone(),
            input("FP64", "[1]", &format!("[{long}]")),
            input("FP64", "[1]", &long),
        ] {
            let refused = decode(&body).unwrap_err();
            assert!(
                matches!(refused, ProtocolError::LongNumber { limit: 2048, .. }),
                "{refused}"
            );
        }
    }
    let many = vec!["-1.5e-3"; 10_000].join(",");
    assert!(decode(&input("FP64", "[10000]", &format!("[{many}]"))).is_ok());
    let exact = format!("{:.1077}", f64::from_bits(1));
    let spaces = " ".repeat(100_000);
    let least = decode(&input("FP64", "[1]", &format!("[{spaces}{exact}]"))).unwrap();
    assert_eq!(least.inputs[0].data[..], f64::from_bits(1).to_le_bytes());
}

#[test]
fn long_strings_are_refused_unread_where_numbers_are_wanted() {
    for text in [
        r"\u0007".repeat(100_000),
        format!(r"\n{}", "n".repeat(100_000)),
    ] {
        let refused = error(&input("FP32", "[1]", &format!("[\"{text}\"]")));
        assert!(
            refused.contains("an element is a string, not a FP32 value"),
            "{refused}"
        );
    }
}

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
