//! Typed contents of tensors, and the bytes that the other forms have.

use bytes::{BufMut, Bytes};

use crate::grpc::message::InferTensorContents;
use crate::{Datatype, ProtocolError, Tensor};

/// Little-endian, row-major; BYTES with lengths. The count is left to [`Tensor::new`].
pub(crate) fn to_bytes(
    tensor: &str,
    datatype: Datatype,
    contents: InferTensorContents,
) -> Result<Bytes, ProtocolError> {
    check_field(tensor, datatype, &contents)?;
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    macro_rules! elements {
        ($values:expr) => {
            $values
                .into_iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        };
        ($values:expr, $type:ty) => {{
            let mut bytes = Vec::with_capacity($values.len() * size_of::<$type>());
            for (element, value) in $values.into_iter().enumerate() {
                let narrow = <$type>::try_from(value).map_err(|_| ProtocolError::OutOfRange {
                    tensor: tensor.into(),
                    datatype,
                    element,
                    value: value.into(),
                })?;
                bytes.extend_from_slice(&narrow.to_le_bytes());
            }
            bytes.into()
        }};
    }
    Ok(match datatype {
        Datatype::Bool => bool_contents.into_iter().map(u8::from).collect(),
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
            for element in bytes_contents {
                // A message is shorter than 4 GiB.
                bytes.put_u32_le(u32::try_from(element.len()).unwrap_or(u32::MAX));
                bytes.extend_from_slice(&element);
            }
            bytes.into()
        }
        Datatype::Fp16 | Datatype::Bf16 => Bytes::new(),
    })
}

/// Checks that no field but the datatype's has elements.
fn check_field(
    tensor: &str,
    datatype: Datatype,
    contents: &InferTensorContents,
) -> Result<(), ProtocolError> {
    let wanted = field(datatype).ok_or_else(|| ProtocolError::RawOnly {
        tensor: tensor.into(),
        datatype,
    })?;
    let lengths = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    let mut others = lengths.into_iter().filter(|(name, _)| *name != wanted);
    match others.find(|(_, length)| *length > 0) {
        Some((given, _)) => Err(ProtocolError::WrongContents {
            tensor: tensor.into(),
            datatype,
            wanted,
            given,
        }),
        None => Ok(()),
    }
}

/// The tensor's contents in typed form; `None` if its datatype has none.
pub(crate) fn typed(tensor: &Tensor) -> Option<InferTensorContents> {
    let data = &tensor.data;
    let mut contents = InferTensorContents::default();
    macro_rules! elements {
        ($type:ty) => {
            data.as_chunks()
                .0
                .iter()
                .map(|bytes| <$type>::from_le_bytes(*bytes).into())
                .collect()
        };
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
            contents.bytes_contents = tensor
                .byte_strings()
                .map(|element| data.slice_ref(element))
                .collect();
        }
        Datatype::Fp16 | Datatype::Bf16 => return None,
    }
    Some(contents)
}

/// The field that a datatype's elements are in.
fn field(datatype: Datatype) -> Option<&'static str> {
    Some(match datatype {
        Datatype::Bool => "bool_contents",
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 => "int_contents",
        Datatype::Int64 => "int64_contents",
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 => "uint_contents",
        Datatype::Uint64 => "uint64_contents",
        Datatype::Fp32 => "fp32_contents",
        Datatype::Fp64 => "fp64_contents",
        Datatype::Bytes => "bytes_contents",
        Datatype::Fp16 | Datatype::Bf16 => return None,
    })
}
