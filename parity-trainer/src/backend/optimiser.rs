//! An optimiser in this process.

use parapet_optimiser::OptimiserSpec;

use super::BackendError;

/// An optimiser with its state.
#[derive(Debug, Clone)]
pub struct Optimiser {
    spec: OptimiserSpec,
    /// Adam: first moment; SGD: momentum.
    first: Vec<f32>,
    /// Adam: second moment; SGD: empty.
    second: Vec<f32>,
}

impl Optimiser {
    /// A fresh one for `parameters` values.
    pub fn new(spec: OptimiserSpec, parameters: usize) -> Self {
        let second = if spec.slots() == 2 { parameters } else { 0 };
        Self { spec, first: vec![0.0; parameters], second: vec![0.0; second] }
    }

    /// Makes step `step` (from 1): changes `weights` by `gradients * scale`, all of the length that was announced.
    pub fn step(&mut self, step: u64, rate: f64, scale: f64, weights: &mut [f32], gradients: &[f32]) {
        self.spec.update(step, rate, scale, weights, gradients, &mut self.first, &mut self.second);
    }

    /// What it keeps, by name.
    pub fn arrays(&self) -> Vec<(&'static str, &[f32])> {
        let all = [("optimiser.first", &self.first), ("optimiser.second", &self.second)];
        all.into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| (name, &values[..]))
            .collect()
    }

    /// Takes over what [`arrays`](Self::arrays) gave.
    ///
    /// # Errors
    /// If an array is missing or of another length.
    pub fn restore<'a>(&mut self, array: impl Fn(&str) -> Option<&'a [f32]>) -> Result<(), BackendError> {
        for (name, own) in [("optimiser.first", &mut self.first), ("optimiser.second", &mut self.second)] {
            if own.is_empty() {
                continue;
            }
            let values = array(name).ok_or_else(|| BackendError::State { array: name.to_owned() })?;
            if values.len() != own.len() {
                let (expected, got) = (own.len(), values.len());
                return Err(BackendError::Layout { what: name.to_owned(), expected, got });
            }
            own.copy_from_slice(values);
        }
        Ok(())
    }
}
