//! Inference requests and responses; metadata of servers and models.

#![allow(missing_docs, reason = "the names say what the fields are")]

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{BINARY_DATA_OUTPUT, Datatype, ProtocolError, Tensor};

/// The protocol's open-ended `parameters` object.
pub type Parameters = serde_json::Map<String, Value>;

/// An output that the client names in its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedOutput {
    pub name: String,
    /// `parameters.binary_data`: whether this output shall come in binary form; `None` where the
    /// request does not say.
    pub binary_data: Option<bool>,
    /// `parameters.classification`, Triton's extension: so many of its top classes are answered.
    pub classes: Option<usize>,
}

/// An inference request, whatever its form on the wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InferRequest {
    /// The client's name for the request, echoed in the response.
    pub id: Option<String>,
    pub parameters: Parameters,
    /// Inputs, in the order given.
    pub inputs: Vec<Tensor>,
    /// Outputs asked for; empty means all of them.
    pub outputs: Vec<RequestedOutput>,
}

impl InferRequest {
    /// Returns true if `output` is to be answered in binary form: by its own `binary_data`, else by
    /// the request's `binary_data_output`, else no.
    pub fn wants_binary(&self, output: &str) -> bool {
        let mut outputs = self.outputs.iter();
        let own = outputs.find(|asked| asked.name == output);
        let of_all = || self.parameters.get(BINARY_DATA_OUTPUT)?.as_bool();
        own.and_then(|asked| asked.binary_data).or_else(of_all).unwrap_or(false)
    }

    /// Returns true if the client asked for `output`: it named it, or named none.
    pub fn wants_output(&self, output: &str) -> bool {
        let mut outputs = self.outputs.iter();
        self.outputs.is_empty() || outputs.any(|asked| asked.name == output)
    }

    /// The outputs that the client asked for, as it asked for them.
    ///
    /// # Errors
    /// Top classes of an output that is not FP32.
    pub fn select(&self, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, ProtocolError> {
        let selected = |tensor: Tensor| {
            let asked = self.outputs.iter().find(|asked| asked.name == tensor.name);
            match asked.and_then(|asked| asked.classes) {
                Some(count) => tensor.top_classes(count),
                None => Ok(tensor),
            }
        };
        let wanted = outputs.into_iter().filter(|tensor| self.wants_output(&tensor.name));
        wanted.map(selected).collect()
    }

    /// Asks for every output in binary form (those that say otherwise themselves keep their say).
    pub fn ask_binary_outputs(&mut self) {
        self.parameters.extend([(BINARY_DATA_OUTPUT.to_owned(), Value::Bool(true))]);
    }
}

/// The answer to an [`InferRequest`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InferResponse {
    pub model_name: String,
    pub model_version: Option<String>,
    pub id: Option<String>,
    pub parameters: Parameters,
    /// Outputs, in the model's order.
    pub outputs: Vec<Tensor>,
}

/// Answer to `GET /v2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    /// Extensions it speaks, such as `binary_tensor_data`.
    #[serde(default)]
    pub extensions: Vec<String>,
}

/// Answer to `GET /v2/models/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    pub name: String,
    #[serde(default)]
    pub versions: Vec<String>,
    /// Framework and format, such as `onnxruntime_onnx`.
    #[serde(default)]
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMetadata {
    pub name: String,
    pub datatype: Datatype,
    /// Shape; -1 for an axis of any length, as the leading batch axis.
    pub shape: Vec<i64>,
}

impl TensorMetadata {
    /// Describes a batched tensor with samples of shape `sample`: the batch axis goes first as -1.
    pub fn batched(name: &str, datatype: Datatype, sample: &[i64]) -> Self {
        Self { name: name.to_owned(), datatype, shape: [&[-1], sample].concat() }
    }
}
