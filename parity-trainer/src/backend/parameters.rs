//! A model's parameters as one flat array.

use std::sync::Arc;

use super::{BackendError, check_length};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterShape {
    pub name: String,
    pub shape: Vec<usize>,
}

impl ParameterShape {
    fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Values for all of a model's parameters (weights or gradients), one parameter after the other;
/// and what the model keeps besides, its buffers, such as batch norm's running moments: those to
/// compute with, or those after a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSet {
    layout: Arc<[ParameterShape]>,
    values: Vec<f32>,
    buffers: Vec<f32>,
}

impl ParameterSet {
    /// Zeroes for parameters of `layout`.
    pub fn zeroes(layout: Vec<ParameterShape>) -> Self {
        let length = layout.iter().map(ParameterShape::length).sum();
        Self {
            layout: layout.into(),
            values: vec![0.0; length],
            buffers: Vec::new(),
        }
    }

    /// The same with these buffers, all in a row.
    #[must_use]
    pub fn with_buffers(self, buffers: Vec<f32>) -> Self {
        Self { buffers, ..self }
    }

    pub fn zeroes_like(&self) -> Self {
        Self {
            layout: Arc::clone(&self.layout),
            values: vec![0.0; self.values.len()],
            buffers: vec![0.0; self.buffers.len()],
        }
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    pub fn buffers(&self) -> &[f32] {
        &self.buffers
    }

    pub fn buffers_mut(&mut self) -> &mut [f32] {
        &mut self.buffers
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ParameterShape, &[f32])> {
        let mut rest = self.values.as_slice();
        self.layout.iter().map(move |shape| {
            let (own, others) = rest.split_at(shape.length());
            rest = others;
            (shape, own)
        })
    }

    /// Each parameter with its values, to be written.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ParameterShape, &mut [f32])> {
        let mut rest = self.values.as_mut_slice();
        self.layout.iter().map(move |shape| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(shape.length());
            rest = others;
            (shape, own)
        })
    }

    /// Takes the values over from a flat array, which `what` names.
    pub fn fill(&mut self, what: &str, values: &[f32]) -> Result<(), BackendError> {
        check_length(what, self.values.len(), values.len())?;
        self.values.copy_from_slice(values);
        Ok(())
    }
}
