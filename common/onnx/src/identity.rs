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

/// A model whose inputs of these names, types and shapes (without batch) come out as `NAME_out`.
pub fn identity_model(tensors: &[(&str, ElementType, &[usize])]) -> Vec<u8> {
    let mut graph = GraphProto { name: Some("identity".to_owned()), ..GraphProto::default() };
    for (name, element, shape) in tensors {
        let out = format!("{name}_out");
        let value =
            |name: &str| ValueInfoProto::batch_of_type(name.to_owned(), *element as i32, shape);
        graph.input.push(value(name));
        graph.output.push(value(&out));
        graph.node.push(NodeProto {
            input: vec![(*name).to_owned()],
            output: vec![out],
            op_type: Some("Identity".to_owned()),
            ..NodeProto::default()
        });
    }
    ModelProto::of(graph).encode_to_vec()
}
