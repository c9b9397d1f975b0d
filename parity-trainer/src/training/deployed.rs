//! Learning a deployed model: cross-entropy on labels.

use std::sync::Arc;

use tch::{Kind, Reduction, Tensor};

use super::Trained;
use super::task::{Attempt, StepRandomness, Task};
use crate::TrainError;
use crate::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use crate::data::{Augment, Samples};
use crate::network::{Network, NetworkSpec, batch, stream};

/// Settings for training a deployed model.
#[derive(Debug, Clone)]
pub struct DeployedRun {
    pub network: NetworkSpec,
    /// Passes over the training samples.
    pub epochs: usize,
    /// Samples a step.
    pub batch: usize,
    /// Peak of the learning rate's cosine schedule.
    pub learning_rate: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// Probability mass that targets give to all classes alike, `0.0..1.0`.
    pub label_smoothing: f64,
    /// Augmentation of samples, drawn afresh each pass.
    pub augment: Augment,
    /// Seed of everything random.
    pub seed: u64,
}

impl DeployedRun {
    /// Samples a step, of `samples`.
    pub(super) fn batch(&self, samples: usize) -> usize {
        self.batch.clamp(1, samples.max(1))
    }

    /// Returns the update rule for all passes over `samples` samples.
    pub fn rule(&self, samples: usize) -> OptimiserConfig {
        OptimiserConfig {
            optimiser: OptimiserSpec::AdamW {
                weight_decay: self.weight_decay,
            },
            learning_rate: self.learning_rate,
            schedule: Schedule::Cosine,
            steps: (self.epochs * samples.div_ceil(self.batch(samples))) as u64,
            clip: None,
        }
    }
}

/// A model that learns labels.
#[derive(Debug)]
pub(super) struct LabelledModel {
    network: Network,
    samples: Arc<Samples>,
    augment: Augment,
    label_smoothing: f64,
    inputs: Vec<f32>,
    labels: Vec<i64>,
}

impl LabelledModel {
    pub(super) fn new(
        run: &DeployedRun,
        samples: Arc<Samples>,
        classes: usize,
    ) -> Result<Self, TrainError> {
        let network = Network::new(
            &run.network,
            &samples.shape,
            classes,
            &mut stream(run.seed, 0),
        )?;
        let count = run.batch(samples.len());
        let (inputs, labels) = (vec![0.0; count * samples.sample_len()], vec![0; count]);
        let (augment, label_smoothing) = (run.augment, run.label_smoothing);
        Ok(Self {
            network,
            samples,
            augment,
            label_smoothing,
            inputs,
            labels,
        })
    }
}

impl Task for LabelledModel {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, _: u64, draw: &mut StepRandomness<'_>) -> Result<Attempt, TrainError> {
        let samples = &self.samples;
        for (input, label) in self
            .inputs
            .chunks_exact_mut(samples.sample_len())
            .zip(&mut self.labels)
        {
            let mut index = 0;
            draw.group(std::slice::from_mut(&mut index));
            self.augment
                .apply(draw.rng, &samples.shape, samples.sample(index), input);
            *label = samples.labels.get(index).copied().map_or(0, i64::from);
        }
        let outputs = self
            .network
            .forward_t(&batch(&self.inputs, &samples.shape), true);
        let labels = Tensor::from_slice(&self.labels).to_device(outputs.device());
        let loss = outputs.cross_entropy_loss::<Tensor>(
            &labels,
            None,
            Reduction::Mean,
            -100,
            self.label_smoothing,
        );
        let right = outputs
            .argmax(-1, false)
            .eq_tensor(&labels)
            .sum(Kind::Int64)
            .int64_value(&[]);
        let told = loss.double_value(&[]);
        Ok(Attempt {
            loss,
            told,
            agreeing: usize::try_from(right).unwrap_or(0),
            queries: self.labels.len(),
        })
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::Model(self.network.frozen())
    }
}
