//! Learning a deployed model: cross-entropy on labels.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use tch::{Kind, Reduction, Tensor};

use super::{Attempt, Task, Trained};
use crate::Result;
use crate::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use crate::data::{Augment, Samples};
use crate::network::{Network, NetworkSpec, batch, stream};

#[derive(Debug, Clone)]
pub struct DeployedRun {
    pub network: NetworkSpec,
    pub epochs: usize,
    pub batch: usize,
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// Probability mass that targets give to all classes alike, `0.0..1.0`.
    pub label_smoothing: f64,
    pub augment: Augment,
    pub seed: u64,
}

impl DeployedRun {
    pub(super) fn batch(&self, samples: usize) -> usize {
        self.batch.clamp(1, samples.max(1))
    }

    /// Returns the update rule for all passes over `samples` samples.
    pub fn rule(&self, samples: usize) -> OptimiserConfig {
        OptimiserConfig {
            optimiser: OptimiserSpec::AdamW { weight_decay: self.weight_decay },
            learning_rate: self.learning_rate,
            schedule: Schedule::Cosine,
            steps: (self.epochs * samples.div_ceil(self.batch(samples))) as u64,
            clip: None,
        }
    }
}

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
    pub(super) fn new(run: &DeployedRun, samples: Arc<Samples>, classes: usize) -> Result<Self> {
        let mut rng = stream(run.seed, 0);
        let count = run.batch(samples.len());
        Ok(Self {
            network: Network::new(&run.network, &samples.shape, classes, &mut rng)?,
            augment: run.augment,
            label_smoothing: run.label_smoothing,
            inputs: vec![0.0; count * samples.sample_len()],
            labels: vec![0; count],
            samples,
        })
    }
}

impl Task for LabelledModel {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, _: u64, members: &[usize], rng: &mut ChaCha8Rng) -> Result<Attempt> {
        let (samples, shape) = (&self.samples, &self.samples.shape);
        let inputs = self.inputs.chunks_exact_mut(samples.sample_len());
        for ((input, label), &index) in inputs.zip(&mut self.labels).zip(members) {
            self.augment.apply(rng, shape, samples.sample(index), input);
            *label = samples.labels.get(index).copied().map_or(0, i64::from);
        }
        let (outputs, borders) = self.network.forward_segments(&batch(&self.inputs, shape));
        let labels = Tensor::from_slice(&self.labels).to_device(outputs.device());
        let (reduction, smoothing) = (Reduction::Mean, self.label_smoothing);
        let loss = outputs.cross_entropy_loss::<Tensor>(&labels, None, reduction, -100, smoothing);
        let right = outputs.argmax(-1, false).eq_tensor(&labels).sum(Kind::Int64);
        let told = loss.double_value(&[]);
        let agreeing = usize::try_from(right.int64_value(&[])).unwrap_or(0);
        Ok(Attempt { loss, borders, told, agreeing, queries: self.labels.len() })
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::Model(self.network.frozen())
    }
}
