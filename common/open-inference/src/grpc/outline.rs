//! Parts of a message, counted on the wire before anything is made of them.
//!
//! An empty tensor or parameter takes two bytes on the wire and some hundred in memory, a number in
//! typed contents one byte and up to eight: a message of some megabytes could take a gigabyte.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::ProtocolError;
use crate::bounded::MAX_TEXT;
use crate::error::MAX_AXES;

/// Tensors, their contents and parameters, and the parameters of tensors.
const MAX_FIELDS: usize = 4096;
/// Strings in typed contents; raw contents, which are one field, can have more.
const MAX_STRINGS: usize = 256 * 1024;
/// Bytes held for a string in typed contents, beside its own: handle, and length when converted.
const STRING: usize = 36;

#[derive(Debug, Default)]
pub(crate) struct Outline<'m> {
    fields: usize,
    strings: usize,
    /// Bytes of typed contents.
    pub(crate) contents: usize,
    pub(crate) model: &'m [u8],
}

/// Message or part of one, by the meaning of its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Request,
    /// Any other message; answers to requests have tensors.
    Other,
    Tensor,
    RequestedOutput,
    Contents,
}

impl Part {
    fn inner(self, tag: u32) -> Option<Self> {
        match (self, tag) {
            (Self::Request | Self::Other, 5) => Some(Self::Tensor),
            (Self::Request, 6) => Some(Self::RequestedOutput),
            (Self::Tensor, 5) => Some(Self::Contents),
            _ => None,
        }
    }

    /// Length of a text in its field `tag`; of a parameter, that of its name and its value.
    fn max_text(self, tag: u32) -> Option<usize> {
        match (self, tag) {
            (Self::Request, 1..=3) | (Self::Tensor, 1..=2) | (Self::RequestedOutput, 1) => {
                Some(MAX_TEXT)
            }
            (Self::Request | Self::Tensor, 4) | (Self::RequestedOutput, 2) => Some(2 * MAX_TEXT),
            _ => None,
        }
    }
}

impl<'m> Outline<'m> {
    pub(crate) fn of(part: Part, message: &'m [u8]) -> Result<Self, ProtocolError> {
        let mut outline = Self::default();
        outline.read(part, message)?;
        Ok(outline)
    }

    fn read(&mut self, part: Part, mut bytes: &'m [u8]) -> Result<(), ProtocolError> {
        let mut axes = 0;
        while !bytes.is_empty() {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            let field = bytes;
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
            let (mut value, _) = field.split_at(field.len() - bytes.len());
            let is_list = wire_type == WireType::LengthDelimited;
            if is_list {
                decode_varint(&mut value)?;
            }
            let length = value.len();
            if let Some(limit) = part.max_text(tag).filter(|limit| length > *limit) {
                return Err(ProtocolError::LongText { length, limit });
            }
            match (part, tag) {
                (Part::Request, 1) => (self.fields, self.model) = (self.fields + 1, value),
                (Part::Request | Part::Other, _) => self.fields += 1,
                (Part::Tensor, 4) | (Part::RequestedOutput, 2) => self.fields += 1,
                (Part::Tensor, 3) => axes += if is_list { varints(value) } else { 1 },
                (Part::Contents, tag) => self.count_contents(tag, value, is_list),
                _ => {}
            }
            check(self.fields, MAX_FIELDS, "tensors and parameters")?;
            let strings = "strings in bytes_contents; send them as raw_input_contents";
            check(self.strings, MAX_STRINGS, strings)?;
            check(axes, MAX_AXES, "axes in a shape")?;
            if let Some(inner) = part.inner(tag).filter(|_| is_list) {
                self.read(inner, value)?;
            }
        }
        Ok(())
    }

    fn count_contents(&mut self, tag: u32, value: &[u8], is_list: bool) {
        let (size, packed) = match tag {
            1 => (1, varints(value)),
            2 | 4 => (4, varints(value)),
            3 | 5 => (8, varints(value)),
            6 => (4, value.len() / 4),
            7 => (8, value.len() / 8),
            8 => {
                self.strings += 1;
                (STRING + value.len(), 1)
            }
            _ => return,
        };
        self.contents += size * if is_list { packed } else { 1 };
    }
}

/// Numbers in a packed list of variable length: each ends with a byte without the highest bit.
fn varints(packed: &[u8]) -> usize {
    packed.iter().filter(|byte| **byte < 0x80).count()
}

fn check(number: usize, limit: usize, parts: &'static str) -> Result<(), ProtocolError> {
    ensure!(number <= limit, ProtocolError::TooMany { parts, limit });
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use prost::Message;

    use super::*;
    use crate::grpc::message::{
        InferParameter, InferRequestedOutput, InferTensor, InferTensorContents, ModelInferRequest,
        ModelInferResponse,
    };

    /// Fields, strings and bytes of contents; or the error.
    fn outline(message: &ModelInferRequest) -> Result<(usize, usize, usize), String> {
        let message = message.encode_to_vec();
        let outline = Outline::of(Part::Request, &message).map_err(|error| error.to_string())?;
        Ok((outline.fields, outline.strings, outline.contents))
    }

    fn request(inputs: Vec<InferTensor>) -> ModelInferRequest {
        ModelInferRequest { model_name: "m".to_owned(), inputs, ..ModelInferRequest::default() }
    }

    fn with_contents(contents: InferTensorContents) -> ModelInferRequest {
        request(vec![InferTensor { contents: Some(contents), ..InferTensor::default() }])
    }

    #[test]
    fn tensors_and_parameters_are_counted_wherever_they_are() {
        let tensors = |number| request(vec![InferTensor::default(); number]);
        assert_eq!(outline(&tensors(3)), Ok((4, 0, 0)));
        let refused = outline(&tensors(100_000)).unwrap_err();
        assert!(refused.contains("more than 4096 tensors and parameters"));
        let parameters = |number: u32| {
            let entry = |i: u32| (i.to_string(), InferParameter::default());
            (0..number).map(entry).collect()
        };
        let of_tensor =
            request(vec![InferTensor { parameters: parameters(100), ..InferTensor::default() }]);
        assert_eq!(outline(&of_tensor), Ok((102, 0, 0)));
        let output = InferRequestedOutput { parameters: parameters(5000), ..Default::default() };
        outline(&ModelInferRequest { outputs: vec![output], ..request(Vec::new()) }).unwrap_err();
        assert!(
            Outline::of(Part::Request, &[0x2a, 0xff]).is_err(),
            "a field that reaches past the end"
        );
    }

    #[test]
    fn contents_are_counted_as_they_are_in_memory() {
        let none = InferTensorContents::default;
        let int64_contents = vec![1, -1, 300];
        let fp32_contents = vec![1.0; 5];
        let bool_contents = vec![true; 5];
        for (contents, bytes) in [
            (InferTensorContents { int64_contents, ..none() }, 24),
            (InferTensorContents { fp32_contents, ..none() }, 20),
            (InferTensorContents { bool_contents, ..none() }, 5),
        ] {
            assert_eq!(outline(&with_contents(contents)), Ok((2, 0, bytes)));
        }
        let strings = |number| {
            let bytes_contents = vec![Bytes::from_static(b"abc"); number];
            with_contents(InferTensorContents { bytes_contents, ..none() })
        };
        assert_eq!(outline(&strings(1000)), Ok((2, 1000, 39_000)));
        let refused = outline(&strings(2 * MAX_STRINGS)).unwrap_err();
        assert!(refused.contains("262144 strings"), "{refused}");
        // Not packed: the key of field 5, its length, that of its field 5, and field 3 twice.
        let unpacked = [0x2a, 0x06, 0x2a, 0x04, 0x18, 0x01, 0x18, 0x02];
        assert_eq!(Outline::of(Part::Request, &unpacked).unwrap().contents, 16);
    }

    #[test]
    fn long_texts_and_shapes_are_refused() {
        let long = |length| "x".repeat(length);
        let tensor = |name: String, axes: usize| {
            request(vec![InferTensor { name, shape: vec![1; axes], ..InferTensor::default() }])
        };
        assert!(outline(&tensor(long(4096), 16)).is_ok());
        let refused = outline(&tensor(long(1_000_000), 1)).unwrap_err();
        assert!(refused.contains("a text of 1000000 bytes"), "{refused}");
        let refused = outline(&tensor(String::new(), 17)).unwrap_err();
        assert!(refused.contains("more than 16 axes"), "{refused}");
        let value = InferParameter { string_param: Some(long(9000)), ..InferParameter::default() };
        let (mut name, mut id, mut parameter) = (request(vec![]), request(vec![]), request(vec![]));
        name.model_name = long(5000);
        id.id = long(5000);
        parameter.parameters.insert("p".to_owned(), value);
        for long in [name, id, parameter] {
            outline(&long).unwrap_err();
        }
    }

    #[test]
    fn the_model_of_a_request_is_found() {
        let message = request(Vec::new()).encode_to_vec();
        assert_eq!(Outline::of(Part::Request, &message).unwrap().model, b"m");
    }

    #[test]
    fn numbers_of_an_answer_are_no_fields() {
        // Read as a message, these would be some thousand fields.
        let raw = Bytes::from([0x12, 0x00].repeat(10_000));
        let answer = ModelInferResponse { raw_output_contents: vec![raw], ..Default::default() };
        assert_eq!(Outline::of(Part::Other, &answer.encode_to_vec()).unwrap().fields, 1);
    }
}
