//! Typed contents of tensors, and the bytes that the other forms have.

use std::mem::take;

use bytes::{BufMut, Bytes};

use crate::grpc::message::InferTensorContents;
use crate::{Datatype, ProtocolError, Tensor};

/// Little-endian, row-major; BYTES with lengths. The count is left to [`Tensor::new`].
pub(crate) fn to_bytes(
    tensor: &str,
    datatype: Datatype,
    mut contents: InferTensorContents,
) -> Result<Bytes, ProtocolError> {
    // The field that the datatype's elements are in, and their bytes.
    macro_rules! elements {
        ($field:ident) => {{
            let values = take(&mut contents.$field).into_iter();
            let bytes = values.flat_map(|value| value.to_le_bytes());
            (stringify!($field), bytes.collect())
        }};
        ($field:ident, $type:ty) => {{
            let values = take(&mut contents.$field);
            let mut bytes = Vec::with_capacity(values.len() * size_of::<$type>());
            for (element, value) in values.into_iter().enumerate() {
                let narrow = <$type>::try_from(value).map_err(|_| ProtocolError::OutOfRange {
                    tensor: tensor.into(),
                    datatype,
                    element,
                    value: value.into(),
                })?;
                bytes.extend_from_slice(&narrow.to_le_bytes());
            }
            (stringify!($field), bytes.into())
        }};
    }
    let (wanted, bytes): (_, Bytes) = match datatype {
        Datatype::Bool => {
            ("bool_contents", take(&mut contents.bool_contents).into_iter().map(u8::from).collect())
        }
        Datatype::Uint8 => elements!(uint_contents, u8),
        Datatype::Uint16 => elements!(uint_contents, u16),
        Datatype::Uint32 => elements!(uint_contents),
        Datatype::Uint64 => elements!(uint64_contents),
        Datatype::Int8 => elements!(int_contents, i8),
        Datatype::Int16 => elements!(int_contents, i16),
        Datatype::Int32 => elements!(int_contents),
        Datatype::Int64 => elements!(int64_contents),
        Datatype::Fp32 => elements!(fp32_contents),
        Datatype::Fp64 => elements!(fp64_contents),
        Datatype::Bytes => {
            let mut bytes = Vec::new();
            for element in take(&mut contents.bytes_contents) {
                // A message is shorter than 4 GiB.
                bytes.put_u32_le(u32::try_from(element.len()).unwrap_or(u32::MAX));
                bytes.extend_from_slice(&element);
            }
            ("bytes_contents", bytes.into())
        }
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(ProtocolError::RawOnly { tensor: tensor.into(), datatype });
        }
    };
    let others = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    match others.into_iter().find(|(_, length)| *length > 0) {
        Some((given, _)) => {
            Err(ProtocolError::WrongContents { tensor: tensor.into(), datatype, wanted, given })
        }
        None => Ok(bytes),
    }
}

/// The tensor's contents in typed form; `None` if its datatype has none.
pub(crate) fn typed(tensor: &Tensor) -> Option<InferTensorContents> {
    let data = &tensor.data;
    let mut contents = InferTensorContents::default();
    macro_rules! elements {
        ($type:ty) => {{
            let elements = data.as_chunks().0.iter();
            elements.map(|bytes| <$type>::from_le_bytes(*bytes).into()).collect()
        }};
    }
    match tensor.datatype {
        Datatype::Bool => contents.bool_contents = data.iter().map(|&byte| byte != 0).collect(),
        Datatype::Uint8 => contents.uint_contents = elements!(u8),
        Datatype::Uint16 => contents.uint_contents = elements!(u16),
        Datatype::Uint32 => contents.uint_contents = elements!(u32),
        Datatype::Uint64 => contents.uint64_contents = elements!(u64),
        Datatype::Int8 => contents.int_contents = elements!(i8),
        Datatype::Int16 => contents.int_contents = elements!(i16),
        Datatype::Int32 => contents.int_contents = elements!(i32),
        Datatype::Int64 => contents.int64_contents = elements!(i64),
        Datatype::Fp32 => contents.fp32_contents = elements!(f32),
        Datatype::Fp64 => contents.fp64_contents = elements!(f64),
        Datatype::Bytes => {
            let elements = tensor.byte_strings().map(|element| data.slice_ref(element));
            contents.bytes_contents = elements.collect();
        }
        Datatype::Fp16 | Datatype::Bf16 => return None,
    }
    Some(contents)
}
