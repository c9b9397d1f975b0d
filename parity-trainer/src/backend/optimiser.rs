//! Optimisers over flat slices, with libtorch's arithmetic.

use serde::{Deserialize, Serialize};

use super::BackendError;

/// Which optimiser, with its constants; the learning rate comes with each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimiserSpec {
    /// Kingma and Ba 2015; weight decay is added to the gradient.
    Adam {
        /// Weight decay.
        weight_decay: f64,
    },
    /// Loshchilov and Hutter 2019; weight decay shrinks the weights themselves.
    AdamW {
        /// Weight decay.
        weight_decay: f64,
    },
    /// Gradient descent with (heavy-ball) momentum; weight decay is added to the gradient.
    Sgd {
        /// Part of the last update that goes on.
        momentum: f64,
        /// Weight decay.
        weight_decay: f64,
    },
}

/// Adam's decay of the first and second moment, and what keeps its divisor off zero.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

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
        let second = match spec {
            OptimiserSpec::Adam { .. } | OptimiserSpec::AdamW { .. } => parameters,
            OptimiserSpec::Sgd { .. } => 0,
        };
        Self { spec, first: vec![0.0; parameters], second: vec![0.0; second] }
    }

    /// Makes step `step` (from 1): changes `weights` by `gradients * scale`, all of the length that was announced.
    pub fn step(&mut self, step: u64, rate: f64, scale: f64, weights: &mut [f32], gradients: &[f32]) {
        let scale = scale as f32;
        match self.spec {
            OptimiserSpec::Adam { weight_decay } => {
                self.adam(step, rate, weights, gradients, scale, weight_decay as f32, 1.0);
            }
            OptimiserSpec::AdamW { weight_decay } => {
                let shrink = (1.0 - rate * weight_decay) as f32;
                self.adam(step, rate, weights, gradients, scale, 0.0, shrink);
            }
            OptimiserSpec::Sgd { momentum, weight_decay } => {
                let (rate, decay) = (rate as f32, weight_decay as f32);
                // The first step's momentum is the gradient itself.
                let momentum = if step <= 1 { 0.0 } else { momentum as f32 };
                let values = weights.iter_mut().zip(gradients).zip(&mut self.first);
                for ((weight, gradient), moving) in values {
                    *moving = momentum * *moving + (gradient * scale + decay * *weight);
                    *weight -= rate * *moving;
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the constants of one inner loop")]
    fn adam(
        &mut self,
        step: u64,
        rate: f64,
        weights: &mut [f32],
        gradients: &[f32],
        scale: f32,
        decay: f32,
        shrink: f32,
    ) {
        let step = i32::try_from(step).unwrap_or(i32::MAX);
        let corrections = (1.0 - BETAS.0.powi(step), (1.0 - BETAS.1.powi(step)).sqrt());
        let pace = (rate / corrections.0) as f32;
        let root = corrections.1 as f32;
        let (keep_first, keep_second) = (BETAS.0 as f32, BETAS.1 as f32);
        let (take_first, take_second) = ((1.0 - BETAS.0) as f32, (1.0 - BETAS.1) as f32);
        let epsilon = EPSILON as f32;
        let values = weights.iter_mut().zip(gradients).zip(&mut self.first).zip(&mut self.second);
        for (((weight, gradient), first), second) in values {
            let gradient = gradient * scale + decay * *weight;
            *first = keep_first * *first + take_first * gradient;
            *second = keep_second * *second + take_second * gradient * gradient;
            *weight = shrink * *weight - pace * *first / (second.sqrt() / root + epsilon);
        }
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
