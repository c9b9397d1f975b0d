//! The codec against the specification's examples, and what each kind of broken message is told.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod memory;

use bytes::Bytes;
use parapet_open_inference::{
    Datatype, Encoded, Encoding, InferRequest, InferResponse, ProtocolError, RequestedOutput, Room,
    Tensor, decode_request, decode_request_within, decode_response, encode_request,
    encode_response,
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
    let numbers = [1_u32, 2, 3, 4].map(u32::to_le_bytes);
    assert_eq!(request.inputs[0].data, numbers.concat());
    assert_eq!(&request.inputs[1].data[..], [1, 0, 1]);
    assert!(!request.wants_binary("output0"));
    assert!(request.wants_binary("output1"));
    assert!(!request.wants_output("output2"));
}

#[test]
fn parameters_are_scalars_and_not_many() {
    let with = |parameters: &str| decode(&format!(r#"{{"parameters":{parameters},"inputs":[]}}"#));
    let given = with(r#"{"a":1,"b":-2,"c":0.5,"d":"e","f":true,"g":null}"#).unwrap().parameters;
    assert_eq!(
        serde_json::to_string(&given).unwrap(),
        r#"{"a":1,"b":-2,"c":0.5,"d":"e","f":true,"g":null}"#
    );
    assert!(with("null").unwrap().parameters.is_empty());
    for nested in [r#"{"a":[]}"#, r#"{"a":{}}"#] {
        let refused = with(nested).unwrap_err().to_string();
        assert!(refused.contains("a number or a boolean"), "{refused}");
    }
    let many = |number: usize| {
        let entries: Vec<String> = (0..number).map(|i| format!("\"{i}\":0")).collect();
        with(&format!("{{{}}}", entries.join(",")))
    };
    assert_eq!(many(1024).unwrap().parameters.len(), 1024);
    let refused = many(1025).unwrap_err().to_string();
    assert!(refused.contains("an object of more than 1024"), "{refused}");
    assert!(with("[]").is_err());
}

#[test]
fn parameters_of_a_tensor_are_kept_in_every_form() {
    let with = |parameters: &str| {
        decode(&format!(
            r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[2],
            "parameters":{parameters},"data":[1,2]}}]}}"#
        ))
    };
    let request = with(r#"{"codec":"np","level":3}"#).unwrap();
    let parameters = &request.inputs[0].parameters;
    assert_eq!(serde_json::to_string(parameters).unwrap(), r#"{"codec":"np","level":3}"#);
    for encoding in [Encoding::Json, Encoding::Binary] {
        let Encoded { body, header_length } = encode_request(&request, encoding).unwrap();
        assert_eq!(decode_request(body, header_length).unwrap().inputs, request.inputs);
    }
    assert!(with("null").unwrap().inputs[0].parameters.is_empty());
    let nested = with(r#"{"codec":{}}"#).unwrap_err().to_string();
    assert!(nested.contains("a number or a boolean"), "{nested}");
    assert!(with("[]").is_err());
}

#[test]
fn nested_and_flat_data_mean_the_same() {
    let nested = decode(&input("FP32", "[2,3]", "[[1, 2.5, -3e2],[0.1, -0, 7]]")).unwrap();
    let flat = decode(&input("FP32", "[2,3]", "[1, 2.5, -3e2, 0.1, -0, 7]")).unwrap();
    assert_eq!(nested, flat);
    assert_eq!(nested.inputs[0].f32s().unwrap(), [1.0, 2.5, -300.0, 0.1, -0.0, 7.0]);
}

#[test]
fn fp16_is_numbers_in_json() {
    let read = decode(&input("FP16", "[4]", "[1, -0.5, 65504, 0.1]")).unwrap();
    let tenth = 0x2e66_u16; // the nearest to 0.1, which is 0.099975586
    let expected: Vec<u8> =
        [0x3c00, 0xb800, 0x7bff, tenth].into_iter().flat_map(u16::to_le_bytes).collect();
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
            Tensor::new("b", Datatype::Bytes, vec![1], b"\x01\0\0\0z"[..].into()).unwrap(),
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
    let output =
        |name: &str, binary_data| RequestedOutput { name: name.into(), binary_data, classes: None };
    request.outputs = vec![output("a", None), output("b", Some(false))];
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
    let with = |field: &str| format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32",{field}}}]}}"#);
    assert!(error(&with("\"data\":[]")).contains("missing field `shape`"));
    assert!(error(&with("\"shape\":[1]")).contains("give either"));
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
    let classes = r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":-3}}]}"#;
    assert!(error(classes).contains("usize"), "{}", error(classes));
    let nested = |depth| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(error(&input("FP32", "[1]", &nested(17))).contains("nested"));
    assert!(decode(&input("FP32", "[1]", &nested(16))).is_ok());
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
        decode_request([header.into_bytes(), vec![0; binary]].concat().into(), Some(length))
    };
    let refused = |size, binary, length| decode(size, binary, length).unwrap_err();
    assert!(decode(4, 4, None).is_ok());
    for (size, binary) in [(4, 3), (usize::MAX, 4)] {
        let error = refused(size, binary, None);
        assert!(matches!(error, ProtocolError::BinaryTooShort { .. }));
    }
    let error = refused(4, 5, None);
    assert!(matches!(error, ProtocolError::BinaryLeftOver { left: 1 }));
    let error = refused(8, 8, None);
    assert!(matches!(error, ProtocolError::ByteCount { .. }));
    let error = refused(4, 4, Some(9999));
    assert!(matches!(error, ProtocolError::HeaderBeyondBody { .. }));
    assert!(matches!(refused(4, 4, Some(7)), ProtocolError::Json(_)));
    let without_length = decode_request(Bytes::from(header(4)), None).unwrap_err();
    assert!(matches!(without_length, ProtocolError::BinaryTooShort { .. }));
}
