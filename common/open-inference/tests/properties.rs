//! Whatever is encoded decodes to itself, and no bytes make the decoder panic.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use parapet_open_inference::{
    Datatype, Encoding, InferRequest, InferResponse, RequestedOutput, Tensor, decode_request,
    decode_response, encode_request, encode_response,
};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..4, 0..4)
}

/// Tensors of any datatype; `json` leaves out what JSON cannot carry.
fn tensors(json: bool) -> impl Strategy<Value = Tensor> {
    let datatype = prop::sample::select(Datatype::ALL.to_vec())
        .prop_filter("has a JSON form", move |datatype| !json || datatype.has_json_form());
    (".{0,8}", datatype, shapes()).prop_flat_map(move |(name, datatype, shape)| {
        let count: usize = shape.iter().product();
        contents(datatype, count, json).prop_map(move |data| {
            Tensor::new(name.clone(), datatype, shape.clone(), data.into()).unwrap()
        })
    })
}

fn contents(datatype: Datatype, count: usize, json: bool) -> BoxedStrategy<Vec<u8>> {
    fn many(
        count: usize,
        element: impl Strategy<Value = Vec<u8>> + 'static,
    ) -> BoxedStrategy<Vec<u8>> {
        let elements = prop::collection::vec(element, count);
        elements.prop_map(|parts| parts.concat()).boxed()
    }
    let finite = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
    let finite64 = prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO;
    let finite16 = any::<u16>().prop_filter("is finite", |bits| bits & 0x7c00 != 0x7c00);
    let string = ".{0,6}".prop_map(|text: String| {
        let length = (text.len() as u32).to_le_bytes();
        [&length[..], text.as_bytes()].concat()
    });
    match (datatype, datatype.size()) {
        (Datatype::Bool, _) => prop::collection::vec(0_u8..2, count).boxed(),
        (Datatype::Fp32, _) if json => many(count, finite.prop_map(|x| x.to_le_bytes().to_vec())),
        (Datatype::Fp64, _) if json => many(count, finite64.prop_map(|x| x.to_le_bytes().to_vec())),
        (Datatype::Fp16, _) if json => many(count, finite16.prop_map(|x| x.to_le_bytes().to_vec())),
        (_, Some(size)) => prop::collection::vec(any::<u8>(), count * size).boxed(),
        (_, None) => many(count, string),
    }
}

fn requests(json: bool) -> impl Strategy<Value = InferRequest> {
    let output = (".{0,4}", any::<Option<bool>>(), prop::option::of(1_usize..9))
        .prop_map(|(name, binary_data, classes)| RequestedOutput { name, binary_data, classes });
    (
        any::<Option<String>>(),
        any::<bool>(),
        prop::collection::vec(tensors(json), 0..4),
        prop::collection::vec(output, 0..3),
    )
        .prop_map(|(id, binary, inputs, outputs)| {
            let mut request = InferRequest { id, inputs, outputs, ..InferRequest::default() };
            if binary {
                request.ask_binary_outputs();
            }
            request
        })
}

proptest! {
    #[test]
    fn json_requests_round_trip(request in requests(true)) {
        let encoded = encode_request(&request, Encoding::Json).unwrap();
        prop_assert_eq!(encoded.header_length, None);
        prop_assert_eq!(decode_request(encoded.body, None).unwrap(), request);
    }

    #[test]
    fn binary_requests_round_trip(request in requests(false)) {
        let encoded = encode_request(&request, Encoding::Binary).unwrap();
        prop_assert_eq!(
            decode_request(encoded.body, encoded.header_length).unwrap(),
            request
        );
    }

    #[test]
    fn responses_round_trip_in_a_mixture_of_forms(
        outputs in prop::collection::vec(tensors(true), 0..4),
    ) {
        let response = InferResponse {
            model_name: "m".into(),
            outputs,
            ..InferResponse::default()
        };
        let encoded = encode_response(&response, |name| name.len() % 2 == 0).unwrap();
        prop_assert_eq!(
            decode_response(encoded.body, encoded.header_length).unwrap(),
            response
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..300),
        length in any::<Option<u16>>(),
    ) {
        let length = length.map(usize::from);
        let _ = decode_request(Bytes::from(body.clone()), length);
        let _ = decode_response(Bytes::from(body), length);
    }

    /// Messages that are nearly right reach further into the decoder than noise does.
    #[test]
    fn damaged_messages_never_panic(
        request in requests(false),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        shift in -3_isize..4,
    ) {
        let encoded = encode_request(&request, Encoding::Binary).unwrap();
        let mut body = encoded.body.to_vec();
        for (index, byte) in damage {
            let index = index.index(body.len());
            body[index] = byte;
        }
        let length = encoded
            .header_length
            .map(|length| length.saturating_add_signed(shift));
        if let Ok(request) = decode_request(body.into(), length) {
            for tensor in &request.inputs {
                tensor.has_non_finite();
                let _ = tensor.f32s();
            }
        }
    }
}
