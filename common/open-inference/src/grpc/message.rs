//! Messages of `inference.GRPCInferenceService`, field by field as KServe and Triton publish them.
//!
//! Triton's further parameter types (`double_param`, `uint64_param`) are among them; its extensions
//! (but for the configuration of a model) are not. Contents are [`Bytes`]: those of
//! a message that was received are slices of it.

#![allow(
    missing_docs,
    reason = "the names are the protocol's own, and explained in its specification"
)]

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServerLiveRequest {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub live: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}

// The same on the wire.
pub type ServerReadyRequest = ServerLiveRequest;
pub type ServerMetadataRequest = ServerLiveRequest;
pub type ServerReadyResponse = ModelReadyResponse;
pub type ModelReadyRequest = ModelMetadataRequest;
pub type ModelConfigRequest = ModelMetadataRequest;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Empty for the version that the server chooses.
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub platform: String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    /// -1 for an axis of any length.
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: Option<ModelConfig>,
}

/// Fields of Triton's that exist here; over REST the same.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ModelConfig {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub platform: String,
    /// 0 where it takes no batches.
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: Vec<ModelOutput>,
    #[prost(string, tag = "17")]
    pub backend: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ModelInput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    #[serde(serialize_with = "write_data_type")]
    pub data_type: i32,
    /// Without the batch.
    #[prost(int64, repeated, tag = "4")]
    pub dims: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct ModelOutput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    #[serde(serialize_with = "write_data_type")]
    pub data_type: i32,
    /// Without the batch.
    #[prost(int64, repeated, tag = "3")]
    pub dims: Vec<i64>,
}

/// Triton's `DataType` in the order of its numbers, without `TYPE_`.
pub(super) const DATA_TYPES: [&str; 15] = [
    "INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "STRING", "BF16",
];

fn write_data_type<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    let name = usize::try_from(*number).ok().and_then(|number| DATA_TYPES.get(number));
    serializer.collect_str(&format_args!("TYPE_{}", name.unwrap_or(&"INVALID")))
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    /// Empty for the version that the server chooses.
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Empty for none.
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InferTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<InferRequestedOutput>,
    /// One for each input, or none at all; little-endian, as in REST's binary form.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    /// Empty for none.
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<InferTensor>,
    /// One for each output, or none at all.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: Vec<Bytes>,
}

/// An input (`InferInputTensor`) or an output (`InferOutputTensor`): the same on the wire.
#[derive(Clone, PartialEq, Message)]
pub struct InferTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: BTreeMap<String, InferParameter>,
    #[prost(message, optional, tag = "5")]
    pub contents: Option<InferTensorContents>,
}

/// `InferRequestedOutputTensor`.
#[derive(Clone, PartialEq, Message)]
pub struct InferRequestedOutput {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub parameters: BTreeMap<String, InferParameter>,
}

/// Contents in typed form: in the field that the datatype asks for.
#[derive(Clone, PartialEq, Message)]
pub struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: Vec<bool>,
    /// INT8, INT16 and INT32.
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: Vec<i64>,
    /// UINT8, UINT16 and UINT32.
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: Vec<f64>,
    /// BYTES, without the lengths that raw contents have.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub bytes_contents: Vec<Bytes>,
}

/// One of these. A float goes as `double_param` and before that as text, for clients that do not
/// know the former, as KServe's; those that do take the last.
#[derive(Clone, PartialEq, Message)]
pub struct InferParameter {
    #[prost(bool, optional, tag = "1")]
    pub bool_param: Option<bool>,
    #[prost(int64, optional, tag = "2")]
    pub int64_param: Option<i64>,
    #[prost(string, optional, tag = "3")]
    pub string_param: Option<String>,
    #[prost(double, optional, tag = "4")]
    pub double_param: Option<f64>,
    #[prost(uint64, optional, tag = "5")]
    pub uint64_param: Option<u64>,
}
