//! Arrays as safetensors.

use std::fs;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::arrays::{self, Array, Elements};
use crate::data::{DataError, Loaded};

/// Most bytes of a file; all of it is read at once.
const MAX_BYTES: u64 = 1 << 34;

pub(in crate::data) fn load(path: &Path) -> Result<Loaded, DataError> {
    let failed = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    let damaged = |problem: safetensors::SafeTensorError| DataError::Damaged {
        path: path.to_path_buf(),
        problem: problem.to_string(),
    };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BYTES {
        let problem = format!("has {length} bytes, at most {MAX_BYTES} are read");
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            problem,
        });
    }
    let contents = fs::read(path).map_err(failed)?;
    let tensors = SafeTensors::deserialize(&contents).map_err(damaged)?;
    let mut names: Vec<String> = tensors
        .names()
        .into_iter()
        .map(|name| name.to_owned())
        .collect();
    names.sort();
    arrays::load(path, &names, |name| {
        let tensor = tensors.tensor(name).map_err(damaged)?;
        let elements = elements(&tensor).ok_or_else(|| DataError::Array {
            path: path.to_path_buf(),
            array: name.to_owned(),
            found: format!("of type {:?}", tensor.dtype()),
            wanted: "save samples as U8, F32 or F64, labels as U8 or whole numbers",
        })?;
        Ok(Array {
            name: name.to_owned(),
            shape: tensor.shape().to_vec(),
            elements,
        })
    })
}

fn elements(tensor: &TensorView<'_>) -> Option<Elements> {
    let bytes = tensor.data();
    macro_rules! integers {
        ($type:ty) => {{
            let (chunks, _) = bytes.as_chunks();
            let value =
                |bytes: &_| i64::try_from(<$type>::from_le_bytes(*bytes)).unwrap_or(i64::MAX);
            Elements::Integers(chunks.iter().map(value).collect())
        }};
    }
    Some(match tensor.dtype() {
        Dtype::U8 => Elements::Bytes(bytes.to_vec()),
        Dtype::I8 => integers!(i8),
        Dtype::U16 => integers!(u16),
        Dtype::I16 => integers!(i16),
        Dtype::U32 => integers!(u32),
        Dtype::I32 => integers!(i32),
        Dtype::U64 => integers!(u64),
        Dtype::I64 => integers!(i64),
        Dtype::F32 => {
            let (chunks, _) = bytes.as_chunks();
            Elements::Floats(
                chunks
                    .iter()
                    .map(|bytes| f32::from_le_bytes(*bytes))
                    .collect(),
            )
        }
        Dtype::F64 => {
            let (chunks, _) = bytes.as_chunks();
            Elements::Floats(
                chunks
                    .iter()
                    .map(|bytes| f64::from_le_bytes(*bytes) as f32)
                    .collect(),
            )
        }
        _ => return None,
    })
}
