//! The subset of ONNX's protobuf schema that the builder writes, generated from
//! `proto/onnx.proto`.

pub(crate) use generated::dimension_proto::Value as Dimension;
pub(crate) use generated::*;

#[allow(clippy::all, clippy::pedantic, unreachable_pub, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/onnx.rs"));
}

/// IR version 8, which goes with opset 17.
const IR_VERSION: i64 = 8;
const OPSET: i64 = 17;
/// `TensorProto.DataType.FLOAT`.
pub(crate) const FLOAT: i32 = 1;
/// `TensorProto.DataType.INT64`.
pub(crate) const INT64: i32 = 7;

/// `AttributeProto.AttributeType`.
pub(crate) mod attribute_type {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const INT: i32 = 2;
    pub(crate) const INTS: i32 = 7;
}

impl ModelProto {
    pub(crate) fn of(graph: GraphProto) -> Self {
        let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) };
        Self {
            ir_version: Some(IR_VERSION),
            producer_name: Some("parapet".to_owned()),
            graph: Some(graph),
            opset_import: vec![opset],
        }
    }
}

impl AttributeProto {
    pub(crate) fn float(name: &str, value: f32) -> Self {
        Self { f: Some(value), ..Self::empty(name, attribute_type::FLOAT) }
    }

    pub(crate) fn int(name: &str, value: i64) -> Self {
        Self { i: Some(value), ..Self::empty(name, attribute_type::INT) }
    }

    pub(crate) fn ints(name: &str, values: &[usize]) -> Self {
        let ints = values.iter().map(|&value| value as i64).collect();
        Self { ints, ..Self::empty(name, attribute_type::INTS) }
    }

    fn empty(name: &str, r#type: i32) -> Self {
        Self { name: Some(name.to_owned()), r#type: Some(r#type), ..Self::default() }
    }
}

impl TensorProto {
    pub(crate) fn floats(name: String, dims: &[usize], values: &[f32]) -> Self {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::of(name, dims.iter().map(|&dim| dim as i64).collect(), FLOAT, raw)
    }

    pub(crate) fn integers(name: String, values: &[i64]) -> Self {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::of(name, vec![values.len() as i64], INT64, raw)
    }

    fn of(name: String, dims: Vec<i64>, data_type: i32, raw: Vec<u8>) -> Self {
        Self { dims, data_type: Some(data_type), name: Some(name), raw_data: Some(raw) }
    }
}

impl ValueInfoProto {
    /// Lets an axis, the batch axis counted, have any length.
    pub(crate) fn free(&mut self, axis: usize) {
        let tensor = self.r#type.as_mut().and_then(|of| of.tensor_type.as_mut());
        let shape = tensor.and_then(|tensor| tensor.shape.as_mut());
        if let Some(axis) = shape.and_then(|shape| shape.dim.get_mut(axis)) {
            axis.value = Some(Dimension::DimParam("steps".to_owned()));
        }
    }

    /// A float tensor of `shape` behind a batch axis of any length.
    pub(crate) fn batch_of(name: String, shape: &[usize]) -> Self {
        let shape: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        Self::batch_of_type(name, FLOAT, &shape)
    }

    /// A tensor of any `TensorProto.DataType`, of `shape` behind a batch axis of any length; axes of
    /// -1 have any, too.
    pub(crate) fn batch_of_type(name: String, elem_type: i32, shape: &[i64]) -> Self {
        let batch = Some(Dimension::DimParam("batch".to_owned()));
        let axes = shape.iter().map(|&dim| (dim >= 0).then_some(Dimension::DimValue(dim)));
        let dim = std::iter::once(batch).chain(axes);
        let dim = dim.map(|value| DimensionProto { value }).collect();
        let tensor_type = Some(TensorTypeProto {
            elem_type: Some(elem_type),
            shape: Some(TensorShapeProto { dim }),
        });
        Self { name: Some(name), r#type: Some(TypeProto { tensor_type }) }
    }
}
