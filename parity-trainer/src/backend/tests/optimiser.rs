//! An optimiser in this process.

use parapet_parameter_server::optimiser::OptimiserSpec;

use crate::backend::{BackendError, BackendState, SLOTS};

/// An optimiser with its state.
#[derive(Debug, Clone)]
pub(crate) struct Optimiser {
    spec: OptimiserSpec,
    /// Adam: first moment; SGD: momentum.
    first: Vec<f32>,
    /// Adam: second moment; SGD: empty.
    second: Vec<f32>,
}

impl Optimiser {
    /// A fresh one for `parameters` values.
    pub(crate) fn new(spec: OptimiserSpec, parameters: usize) -> Self {
        let second = if spec.slots() == 2 { parameters } else { 0 };
        Self {
            spec,
            first: vec![0.0; parameters],
            second: vec![0.0; second],
        }
    }

    /// Makes step `step` (from 1): changes `weights` by `gradients * scale`, all of the length
    /// that was announced.
    pub(crate) fn step(
        &mut self,
        step: u64,
        rate: f64,
        scale: f64,
        weights: &mut [f32],
        gradients: &[f32],
    ) {
        let step = u32::try_from(step).unwrap_or(u32::MAX);
        let scaled: Vec<f32> = gradients.iter().map(|value| value * scale as f32).collect();
        let state =
            &mut [self.first.as_mut_slice(), self.second.as_mut_slice()][..self.spec.slots()];
        self.spec
            .at(rate, |rule| rule.apply(step, &scaled, weights, state));
    }

    pub(crate) fn arrays(&self) -> Vec<(&'static str, &[f32])> {
        let all = SLOTS
            .into_iter()
            .zip([self.first.as_slice(), self.second.as_slice()]);
        all.filter(|(_, values)| !values.is_empty()).collect()
    }

    /// Takes over what [`arrays`](Self::arrays) gave.
    ///
    /// # Errors
    /// If an array is missing or of another length.
    pub(crate) fn restore(&mut self, state: &BackendState) -> Result<(), BackendError> {
        for (name, own) in SLOTS.into_iter().zip([&mut self.first, &mut self.second]) {
            if !own.is_empty() {
                let values = state.array_of(name, own.len())?;
                own.copy_from_slice(values);
            }
        }
        Ok(())
    }
}
