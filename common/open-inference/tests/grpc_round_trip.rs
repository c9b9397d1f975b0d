//! Round trips of messages in both forms, and the names of mistakes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use parapet_open_inference::grpc::message::{
    InferParameter, InferRequestedOutput, InferTensor, InferTensorContents, ModelInferRequest,
    ModelMetadataResponse,
};
use parapet_open_inference::grpc::{
    Form, read_request, read_response, write_request, write_response,
};
use parapet_open_inference::{
    Datatype, InferRequest, InferResponse, ModelMetadata, Tensor, TensorMetadata,
};
use proptest::prelude::*;
use prost::Message as _;
use serde_json::json;

fn tensor() -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0_usize..4, 0..3);
    ("[a-z]{1,4}", prop::sample::select(Datatype::ALL.to_vec()), shape).prop_flat_map(
        |(name, datatype, shape)| {
            let count: usize = shape.iter().product();
            let element = match datatype.size() {
                Some(_) if datatype == Datatype::Bool => prop::collection::vec(0_u8..2, 1).boxed(),
                Some(size) => prop::collection::vec(any::<u8>(), size).boxed(),
                None => prop::collection::vec(any::<u8>(), 0..5)
                    .prop_map(|bytes| [(bytes.len() as u32).to_le_bytes().to_vec(), bytes].concat())
                    .boxed(),
            };
            prop::collection::vec(element, count).prop_map(move |elements| {
                let data = elements.concat().into();
                let tensor = Tensor::new(name.clone(), datatype, shape.clone(), data).unwrap();
                let parameters = json!({ "codec": name }).as_object().unwrap().clone();
                Tensor { parameters, ..tensor }
            })
        },
    )
}

proptest! {
    #[test]
    fn requests_and_responses_round_trip(
        tensors in prop::collection::vec(tensor(), 0..4),
        id in prop::option::of("[a-z]{1,8}"),
        typed in any::<bool>(),
    ) {
        let form = if typed { Form::Typed } else { Form::Raw };
        let parameters =
            json!({"text": "x", "yes": true, "count": -3, "big": u64::MAX, "half": 0.5});
        let parameters = parameters.as_object().unwrap().clone();
        let request = InferRequest {
            id: id.clone(),
            parameters,
            inputs: tensors,
            outputs: Vec::new(),
        };
        let bytes = write_request("m", Some("2"), &request).encode_to_vec();
        let message = ModelInferRequest::decode(Bytes::from(bytes)).unwrap();
        prop_assert_eq!(
            (message.model_name.as_str(), message.model_version.as_str()),
            ("m", "2")
        );
        let (read, _) = read_request(message).unwrap();
        prop_assert_eq!(&read, &request);

        let InferRequest {
            parameters,
            inputs: outputs,
            ..
        } = request;
        let response = InferResponse {
            model_name: "m".into(),
            model_version: None,
            id,
            parameters,
            outputs,
        };
        let bytes = write_response(&response, form).encode_to_vec();
        prop_assert_eq!(
            read_response(prost::Message::decode(Bytes::from(bytes)).unwrap()).unwrap(),
            response
        );
    }
}

#[test]
fn raw_contents_are_slices_of_the_message() {
    let input = Tensor::from_f32("x", [1, 4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let request = InferRequest { inputs: vec![input], ..InferRequest::default() };
    let bytes = Bytes::from(write_request("m", None, &request).encode_to_vec());
    let (read, form) = read_request(ModelInferRequest::decode(bytes.clone()).unwrap()).unwrap();
    assert_eq!(form, Form::Raw);
    assert!(bytes.as_ptr_range().contains(&read.inputs[0].data.as_ptr()));
}

/// As Triton's own client for Python writes it: `InferInput("x", [1, 2], "FP32")` with 1.0 and
/// -2.0, request id `7`, version `3`, and `priority = 5`.
#[test]
fn bytes_of_another_implementation_are_read() {
    let bytes: &[u8] = include_bytes!("data/request.bin");
    let message = ModelInferRequest::decode(bytes).unwrap();
    assert_eq!((message.model_name.as_str(), message.model_version.as_str()), ("model", "3"));
    let (request, form) = read_request(message).unwrap();
    assert_eq!((form, request.id.as_deref()), (Form::Raw, Some("7")));
    assert_eq!(request.parameters["priority"], 5);
    assert_eq!(request.inputs, [Tensor::from_f32("x", [1, 2], &[1.0, -2.0]).unwrap()]);
    assert_eq!(request.outputs[0].name, "y");
}

#[test]
fn empty_contents_beside_raw_ones_are_passed_over() {
    let mut message = ModelInferRequest::decode(&include_bytes!("data/request.bin")[..]).unwrap();
    message.inputs[0].contents = Some(InferTensorContents::default());
    assert_eq!(read_request(message).unwrap().0.inputs[0].f32s().unwrap(), [1.0, -2.0]);
}

fn input(datatype: &str, shape: &[i64], contents: Option<InferTensorContents>) -> InferTensor {
    InferTensor {
        name: "x".into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        contents,
        ..InferTensor::default()
    }
}

fn error(input: InferTensor, raw: &[&'static [u8]]) -> String {
    let raw_input_contents = raw.iter().map(|raw| Bytes::from_static(raw)).collect();
    let message =
        ModelInferRequest { inputs: vec![input], raw_input_contents, ..Default::default() };
    read_request(message).unwrap_err().to_string()
}

#[test]
fn every_mistake_is_named() {
    let numbers = |int_contents: &[i32]| {
        Some(InferTensorContents {
            int_contents: int_contents.to_vec(),
            ..InferTensorContents::default()
        })
    };
    let raw: &[&'static [u8]] = &[b"1234"];
    for (input, raw, named) in [
        (input("FP31", &[1], None), raw, "unknown datatype \"FP31\""),
        (input("FP32", &[-1], None), raw, "negative axis"),
        (input("FP32", &[2], None), raw, "takes 8 bytes, got 4"),
        (input("FP32", &[i64::MAX, 4], None), raw, "too large"),
        (input("FP32", &[1], None), &[b"1234", b"1234"], "2 raw contents for 1 tensors"),
        (input("INT32", &[1], numbers(&[1])), raw, "leave one out"),
        (input("FP32", &[1], None), &[], "takes 4 bytes, got 0"),
        (input("FP32", &[1], numbers(&[1])), &[], "\"fp32_contents\", not as \"int_contents\""),
        (input("INT8", &[2], numbers(&[127, 128])), &[], "element 1 is 128, not a INT8"),
        (input("FP16", &[1], None), &[], "no typed contents"),
    ] {
        let refused = error(input, raw);
        assert!(refused.contains(named), "{refused}");
    }

    let one = InferParameter { int64_param: Some(1), ..InferParameter::default() };
    let classes = |classes: &InferParameter| {
        let output = InferRequestedOutput {
            name: "y".into(),
            parameters: BTreeMap::from([("classification".to_owned(), classes.clone())]),
        };
        read_request(ModelInferRequest { outputs: vec![output], ..Default::default() })
    };
    assert_eq!(classes(&one).unwrap().0.outputs[0].classes, Some(1));
    let (mut negative, mut text) = (one.clone(), InferParameter::default());
    (negative.int64_param, text.string_param) = (Some(-1), Some("1".to_owned()));
    for wrong in [negative, text] {
        let refused = classes(&wrong).unwrap_err().to_string();
        assert!(refused.contains("\"classification\" must be"), "{refused}");
    }
    let shared = InferTensor {
        parameters: BTreeMap::from([("shared_memory_region".to_owned(), one)]),
        ..input("FP32", &[1], None)
    };
    assert!(error(shared, &[]).contains("\"shared_memory_region\" is an extension"));
}

#[test]
fn metadata_round_trips_and_an_unknown_datatype_is_named() {
    let tensor = |name| vec![TensorMetadata::batched(name, Datatype::Bf16, &[3, 4])];
    let metadata = ModelMetadata {
        name: "m".to_owned(),
        versions: vec!["2".to_owned()],
        platform: "tensorrt_plan".to_owned(),
        inputs: tensor("x"),
        outputs: tensor("y"),
    };
    let mut response = ModelMetadataResponse::from(metadata.clone());
    assert_eq!(ModelMetadata::try_from(response.clone()).unwrap(), metadata);
    response.outputs[0].datatype = "FP8".to_owned();
    let error = ModelMetadata::try_from(response).unwrap_err().to_string();
    assert!(error.contains("\"y\"") && error.contains("FP8"), "{error}");
}
