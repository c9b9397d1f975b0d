//! Messages on the wire.

use std::any::TypeId;
use std::marker::PhantomData;

use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::message::ModelInferRequest;

/// Tensors, their contents and parameters in a message, and the parameters of its tensors. An empty one takes two bytes on the
/// wire and some hundred in memory, so that a message of some megabytes could take a gigabyte.
const MAX_FIELDS: usize = 4096;
/// Strings in the typed contents of its tensors; more can be had as raw contents, which are one field.
const MAX_STRINGS: usize = 256 * 1024;

/// Protocol buffers whose number of fields is bounded.
pub(crate) struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Counts a message's fields, then reads it.
pub(crate) struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + 'static> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message lies in one piece.
        let mut found = Found::default();
        let whole =
            if TypeId::of::<U>() == TypeId::of::<ModelInferRequest>() { Part::Request } else { Part::Other };
        let refused = |error: DecodeError| Status::invalid_argument(error.to_string());
        found.count(whole, buffer.chunk()).map_err(refused)?;
        if found.fields > MAX_FIELDS {
            let message = format!("the message has more than {MAX_FIELDS} tensors and parameters");
            return Err(Status::invalid_argument(message));
        }
        if found.strings > MAX_STRINGS {
            let message = format!(
                "the message has more than {MAX_STRINGS} strings in bytes_contents; send them as raw_input_contents"
            );
            return Err(Status::invalid_argument(message));
        }
        self.0.decode(buffer)
    }
}

/// A part of a message, by what is in its fields.
#[derive(Debug, Clone, Copy)]
enum Part {
    Request,
    /// Any other message, an answer to a request among them.
    Other,
    Tensor,
    RequestedOutput,
    Contents,
}

impl Part {
    /// What is in its field of this number, as far as that is looked into.
    fn field(self, tag: u32) -> Option<Self> {
        match (self, tag) {
            (Self::Request | Self::Other, 5) => Some(Self::Tensor),
            (Self::Request, 6) => Some(Self::RequestedOutput),
            (Self::Tensor, 5) => Some(Self::Contents),
            _ => None,
        }
    }
}

/// What a message is made of, up to a little more than is allowed.
#[derive(Debug, Default)]
struct Found {
    fields: usize,
    strings: usize,
}

impl Found {
    fn count(&mut self, part: Part, mut bytes: &[u8]) -> Result<(), DecodeError> {
        while !bytes.is_empty() && self.fields <= MAX_FIELDS && self.strings <= MAX_STRINGS {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            let field = bytes;
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
            match part {
                Part::Request | Part::Other => self.fields += 1,
                // Of the others, only these are made of more than what is on the wire.
                Part::Tensor => self.fields += usize::from(tag == 4),
                Part::RequestedOutput => self.fields += usize::from(tag == 2),
                Part::Contents => self.strings += usize::from(tag == 8),
            }
            if let (Some(inner), WireType::LengthDelimited) = (part.field(tag), wire_type) {
                let (mut inside, _) = field.split_at(field.len() - bytes.len());
                decode_varint(&mut inside)?;
                self.count(inner, inside)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::*;
    use crate::message::{
        InferParameter, InferRequestedOutput, InferTensor, InferTensorContents, ModelInferResponse,
    };

    fn found(part: Part, message: &impl Message) -> (usize, usize) {
        let mut found = Found::default();
        found.count(part, &message.encode_to_vec()).unwrap();
        (found.fields, found.strings)
    }

    fn request(inputs: Vec<InferTensor>) -> ModelInferRequest {
        ModelInferRequest { model_name: "m".to_owned(), inputs, ..ModelInferRequest::default() }
    }

    #[test]
    fn fields_are_counted_before_anything_is_made_of_them() {
        let tensors = |number| request(vec![InferTensor::default(); number]);
        assert_eq!(found(Part::Request, &tensors(3)), (4, 0));
        assert_eq!(found(Part::Request, &tensors(100_000)), (MAX_FIELDS + 1, 0));
        let mut beyond = Found::default();
        assert!(beyond.count(Part::Request, &[0x2a, 0xff]).is_err(), "a field that reaches past the end");
    }

    #[test]
    fn so_is_what_lies_within_tensors() {
        let parameters = |number: u32| {
            let entry = |i: u32| (i.to_string(), InferParameter::default());
            (0..number).map(entry).collect()
        };
        let strings = |number| {
            let bytes_contents = vec![Bytes::new(); number];
            let contents = Some(InferTensorContents { bytes_contents, ..InferTensorContents::default() });
            request(vec![InferTensor { contents, ..InferTensor::default() }])
        };
        assert_eq!(found(Part::Request, &strings(1000)), (2, 1000));
        assert_eq!(found(Part::Request, &strings(2 * MAX_STRINGS)), (2, MAX_STRINGS + 1));
        let of_tensor = request(vec![InferTensor { parameters: parameters(100), ..InferTensor::default() }]);
        assert_eq!(found(Part::Request, &of_tensor), (102, 0));
        let output = InferRequestedOutput { parameters: parameters(5000), ..InferRequestedOutput::default() };
        let of_output = ModelInferRequest { outputs: vec![output], ..request(Vec::new()) };
        assert_eq!(found(Part::Request, &of_output), (MAX_FIELDS + 1, 0));
    }

    #[test]
    fn numbers_of_an_answer_are_no_fields() {
        // Read as a message, these would be some thousand fields.
        let raw = Bytes::from([0x12, 0x00].repeat(10_000));
        let answer = ModelInferResponse { raw_output_contents: vec![raw], ..ModelInferResponse::default() };
        assert_eq!(found(Part::Other, &answer), (1, 0));
    }
}
