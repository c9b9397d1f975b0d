//! A model that gives back what it is given: for tests of what lies around models.

use prost::Message;

use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

/// Element type of a tensor, with ONNX's number for it (`TensorProto.DataType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are ONNX's own")]
pub enum ElementType {
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
}

/// A model with an input of each name, element type and shape (without the batch axis), which comes
/// out again as `NAME_out`.
pub fn identity_model(tensors: &[(&str, ElementType, &[usize])]) -> Vec<u8> {
    let out = |name: &str| format!("{name}_out");
    let node = |(name, _, _): &(&str, ElementType, &[usize])| NodeProto {
        input: vec![(*name).to_owned()],
        output: vec![out(name)],
        op_type: Some("Identity".to_owned()),
        ..NodeProto::default()
    };
    let value = |name: String, element: ElementType, shape: &[usize]| {
        ValueInfoProto::batch_of_type(name, element as i32, shape)
    };
    let graph = GraphProto {
        node: tensors.iter().map(node).collect(),
        name: Some("identity".to_owned()),
        input: tensors
            .iter()
            .map(|(name, element, shape)| value((*name).to_owned(), *element, shape))
            .collect(),
        output: tensors
            .iter()
            .map(|(name, element, shape)| value(out(name), *element, shape))
            .collect(),
        ..GraphProto::default()
    };
    ModelProto::of(graph).encode_to_vec()
}
