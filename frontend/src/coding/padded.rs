//! Parity queries of sequences.

use std::sync::Arc;

use parapet_config::repository::Datatype;
use parapet_encoder::{Padding, stack_padded};
use parapet_open_inference::Tensor;

use super::{CodedInput, CodingError, at};
use crate::payload::Input;

#[derive(Debug)]
pub(crate) struct Padded {
    pub(crate) padding: Padding,
    /// Axis of the steps in a query, the batch axis counted.
    pub(crate) axis: usize,
    pub(crate) lengths_names: Vec<String>,
}

impl Padded {
    pub(super) fn steps(&self, query: &Tensor) -> usize {
        query.shape.get(self.axis).copied().unwrap_or_default()
    }
}

impl CodedInput {
    /// The stack, and the lengths of its members as they were.
    pub(super) fn stack(
        &self,
        padded: &Padded,
        row: usize,
        inputs: &[Arc<Input>],
    ) -> Result<[Tensor; 2], CodingError> {
        let queries = inputs.iter().map(|input| at(&input.tensors, self.position));
        let queries: Vec<&Tensor> = queries.collect::<Result<_, _>>()?;
        let views: Vec<&[u8]> = queries.iter().map(|query| &*query.data).collect();
        let steps: Vec<usize> = queries.iter().map(|query| padded.steps(query)).collect();
        let first = *queries.first().ok_or(CodingError::NoTensor)?;
        let rows = first.shape.first().copied().unwrap_or_default();
        let most = steps.iter().copied().max().unwrap_or_default();
        let length = padded.padding.padded(most).ok_or(CodingError::TooLong { steps: most })?;
        let step_bytes = first.data.len() / (rows * padded.steps(first)).max(1);
        let data = stack_padded(&views, rows, length * step_bytes)?;
        let mut shape = first.shape.clone();
        if let Some(axis) = shape.get_mut(padded.axis) {
            *axis = length;
        }
        shape.insert(1, queries.len());
        let name = self.parity_names.get(row).unwrap_or(&first.name);
        let stack = Tensor::new(name.clone(), first.datatype, shape, data.into())?;
        let own: Vec<u8> = steps.iter().flat_map(|&own| (own as i64).to_le_bytes()).collect();
        let name = padded.lengths_names.get(row).ok_or(CodingError::NoTensor)?;
        let shape = vec![rows, queries.len()];
        let lengths = Tensor::new(name.clone(), Datatype::Int64, shape, own.repeat(rows).into())?;
        Ok([stack, lengths])
    }
}
