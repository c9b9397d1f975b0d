//! Messages on the wire.

use std::marker::PhantomData;

use bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Fields of a message at the top: tensors, their contents, and parameters. An empty one takes two bytes on the wire and some
/// hundred in memory, so that a message of some megabytes could take a gigabyte.
const MAX_FIELDS: usize = 4096;

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

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // A message lies in one piece.
        match count_fields(buffer.chunk()) {
            Ok(..=MAX_FIELDS) => self.0.decode(buffer),
            Ok(_) => Err(Status::invalid_argument(format!(
                "the message has more than {MAX_FIELDS} tensors and parameters"
            ))),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        }
    }
}

/// Up to one more than are allowed.
fn count_fields(mut bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut count = 0;
    while !bytes.is_empty() && count <= MAX_FIELDS {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::message::{InferTensor, ModelInferRequest};

    #[test]
    fn fields_are_counted_before_anything_is_made_of_them() {
        let request = |inputs| ModelInferRequest {
            model_name: "m".to_owned(),
            inputs: vec![InferTensor::default(); inputs],
            ..ModelInferRequest::default()
        };
        assert_eq!(count_fields(&request(3).encode_to_vec()).unwrap(), 4);
        assert_eq!(count_fields(&request(100_000).encode_to_vec()).unwrap(), MAX_FIELDS + 1);
        assert!(count_fields(&[0x2a, 0xff]).is_err(), "a field that reaches past the end");
    }
}
