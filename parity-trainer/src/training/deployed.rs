//! Learning a deployed model: cross-entropy on labels, squared error on targets.

use std::sync::Arc;

use parapet_decoder::{Agreement, OutputKind};
use parapet_encoder::OutputTransform;
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Reduction, Tensor};

use super::groups::moments;
use super::loss::agreeing;
use super::{Attempt, Task, Trained};
use crate::Result;
use crate::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use crate::data::{Augment, Samples, row};
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
    /// The comparison of its outputs: with labels by classes, with targets by others.
    pub agreement: Agreement,
    pub seed: u64,
}

impl DeployedRun {
    pub fn loss_name(&self) -> &'static str {
        match self.agreement.kind() {
            OutputKind::Classes => "cross-entropy",
            _ => "mean squared error",
        }
    }

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
    agreement: Agreement,
    inputs: Vec<f32>,
}

impl LabelledModel {
    pub(super) fn new(run: &DeployedRun, samples: Arc<Samples>) -> Result<Self> {
        let (mut rng, outputs) = (stream(run.seed, 0), run.agreement.output_len());
        let count = run.batch(samples.len());
        let mut network = Network::new(&run.network, &samples.shape, outputs, &mut rng)?;
        if !samples.targets.is_empty() {
            let (mean, deviation) = moments(&samples.targets);
            network.scale_output(deviation, mean);
        }
        Ok(Self {
            network,
            agreement: run.agreement,
            augment: run.augment,
            label_smoothing: run.label_smoothing,
            inputs: vec![0.0; count * samples.sample_len()],
            samples,
        })
    }
}

impl LabelledModel {
    /// The cross-entropy, and the outputs whose top class is the label.
    fn against_labels(&self, outputs: &Tensor, members: &[usize]) -> (Tensor, usize) {
        let label = |&index: &usize| self.samples.labels.get(index).copied().map_or(0, i64::from);
        let labels: Vec<i64> = members.iter().map(label).collect();
        let labels = Tensor::from_slice(&labels).to_device(outputs.device());
        let (reduction, smoothing) = (Reduction::Mean, self.label_smoothing);
        let loss = outputs.cross_entropy_loss::<Tensor>(&labels, None, reduction, -100, smoothing);
        let right = outputs.argmax(-1, false).eq_tensor(&labels).sum(Kind::Int64);
        (loss, usize::try_from(right.int64_value(&[])).unwrap_or(0))
    }

    /// The mean squared error, and the outputs that agree with the target.
    fn against_targets(&self, outputs: &Tensor, members: &[usize]) -> Result<(Tensor, usize)> {
        let len = self.agreement.output_len();
        let targets = members.iter().flat_map(|&index| row(&self.samples.targets, index, len));
        let targets = batch(&targets.copied().collect::<Vec<f32>>(), &[len]);
        let targets = targets.to_device(outputs.device());
        let loss = outputs.mse_loss(&targets, Reduction::Mean);
        Ok((loss, agreeing(&self.agreement, &OutputTransform::Raw, outputs, &targets)?))
    }
}

impl Task for LabelledModel {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, _: u64, members: &[usize], rng: &mut ChaCha8Rng) -> Result<Attempt> {
        let (samples, shape) = (&self.samples, &self.samples.shape);
        let inputs = self.inputs.chunks_exact_mut(samples.sample_len());
        for (input, &index) in inputs.zip(members) {
            self.augment.apply(rng, shape, samples.sample(index), input);
        }
        let (outputs, pass) = self.network.forward_segments(&batch(&self.inputs, shape));
        let (loss, agreeing) = match samples.targets.is_empty() {
            true => self.against_labels(&outputs, members),
            false => self.against_targets(&outputs, members)?,
        };
        Ok(Attempt { told: loss.double_value(&[]), loss, pass, agreeing, queries: members.len() })
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::Model(self.network.frozen())
    }
}
