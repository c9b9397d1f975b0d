//! Messages of `inference.GRPCInferenceService`, generated from `proto/open_inference.proto`, which
//! says what their fields are.
//!
//! Contents are [`Bytes`](bytes::Bytes): those of a message that was received are slices of it.

#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    unreachable_pub,
    reason = "generated, with the protocol's own names, which its specification explains"
)]

use std::collections::BTreeMap;

use prost::Message;
use serde::Serializer;

pub use model_infer_request::InferRequestedOutputTensor as InferRequestedOutput;
pub use model_metadata_response::TensorMetadata;

include!(concat!(env!("OUT_DIR"), "/inference.rs"));

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

fn write_data_type<S: Serializer>(number: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(DataType::try_from(*number).unwrap_or_default().as_str_name())
}
