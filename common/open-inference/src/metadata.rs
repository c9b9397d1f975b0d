//! Metadata of servers and models.

use serde::{Deserialize, Serialize};

use crate::Datatype;

/// Answer to `GET /v2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    /// Name of the server.
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// Extensions it speaks, such as `binary_tensor_data`.
    #[serde(default)]
    pub extensions: Vec<String>,
}

/// Answer to `GET /v2/models/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    /// Name of the model.
    pub name: String,
    /// Versions that are served.
    #[serde(default)]
    pub versions: Vec<String>,
    /// Framework and format, such as `onnxruntime_onnx`.
    pub platform: String,
    /// Tensors that a request must have.
    pub inputs: Vec<TensorMetadata>,
    /// Tensors that a response has.
    pub outputs: Vec<TensorMetadata>,
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    /// Name of the tensor.
    pub name: String,
    /// Datatype of the tensor's elements.
    pub datatype: Datatype,
    /// Shape; -1 for an axis of any length, as the leading batch axis.
    pub shape: Vec<i64>,
}

impl TensorMetadata {
    /// Describes a batched tensor whose samples have shape `sample`: the batch axis goes in
    /// front as -1.
    pub fn batched(name: &str, datatype: Datatype, sample: &[usize]) -> Self {
        let axes = sample
            .iter()
            .map(|&axis| i64::try_from(axis).unwrap_or(i64::MAX));
        Self {
            name: name.to_owned(),
            datatype,
            shape: std::iter::once(-1).chain(axes).collect(),
        }
    }
}
