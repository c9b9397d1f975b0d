//! Learning a parity model: mean squared error against the weighted sum of the deployed model's
//! outputs (ParM section 4.1).

use std::rc::Rc;
use std::sync::Arc;

use parapet_encoder::{CodeSpec, Encoder, build_encoder};
use rand_chacha::ChaCha8Rng;
use tch::Reduction;

use super::groups::{CodedSet, GroupBatch, fixed_groups, moments, random_groups};
use super::{Attempt, Loss, Task, Trained, TrainingSet, VALIDATION_CHUNK, Variants};
use crate::backend::OptimiserConfig;
use crate::deployed::Differentiable;
use crate::network::{Network, NetworkSpec, batch, stream, values};
use crate::{Result, TrainError};

#[derive(Debug, Clone)]
pub struct ParityRun {
    pub network: NetworkSpec,
    pub code: CodeSpec,
    pub row: usize,
    pub groups: usize,
    pub rule: OptimiserConfig,
    /// Steps from one validation to the next; the last step is always followed by one.
    pub validate_every: u64,
    pub learned: Option<LearnedRun>,
    /// Variants of samples that slots are learned from; none to learn from the samples themselves.
    pub variants: Option<Variants>,
    /// Network of the deployed model, where it is known: slots of its kind begin with its weights.
    pub start: Option<Rc<Network>>,
    /// Of a learned code's reconstructions, or of slots; a sum is learned by its squared error.
    pub loss: Loss,
    pub seed: u64,
}

#[derive(Debug, Clone)]
pub struct LearnedRun {
    pub decoder: NetworkSpec,
    pub through: Rc<dyn Differentiable>,
}

#[derive(Debug)]
pub(super) struct ParityModel {
    encoder: Box<dyn Encoder>,
    row: usize,
    network: Network,
    train: CodedSet,
    validation: CodedSet,
    /// Samples of the validation's groups, one group after another.
    validation_groups: Vec<usize>,
    filled: GroupBatch,
}

impl ParityModel {
    pub(super) fn new(
        run: &ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
    ) -> Result<Self> {
        let encoder = build_encoder(&run.code, &set.shape)?;
        let code = encoder.code();
        let (row, r) = (run.row, code.r());
        if row >= r {
            let problem = format!("parity row {row}: the code has rows 0 to {} (r = {r})", r - 1);
            return Err(TrainError::Input(problem));
        }
        let mut rng = stream(run.seed, 2);
        let mut network = Network::new(&run.network, &set.shape, set.outputs(), &mut rng)?;
        let train = CodedSet::new(set, code.transform());
        let (mean, deviation) = moments(&train.coded);
        let coefficients = code.row(row);
        let weight = f64::from(coefficients.iter().sum::<f32>());
        let spread = f64::from(coefficients.iter().map(|a| a * a).sum::<f32>()).sqrt();
        network.scale_output(deviation * spread, mean * weight);
        // Mean and deviation of what the network will be given: parity queries.
        let mut batch = train.batch(random_groups(&train, code.k(), run.seed), code.k());
        train.fill(encoder.as_ref(), row, &mut batch)?;
        network.normalise(&batch.parity)?;
        let validation = CodedSet::new(validation, code.transform());
        Ok(Self {
            row,
            validation_groups: fixed_groups(validation.set.len(), code.k(), run.seed),
            filled: train.batch(vec![0; run.groups.max(1) * code.k()], code.k()),
            encoder,
            network,
            train,
            validation,
        })
    }
}

impl Task for ParityModel {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, _: u64, members: &[usize], _: &mut ChaCha8Rng) -> Result<Attempt> {
        let (encoder, set) = (self.encoder.as_ref(), &self.train.set);
        self.filled.members.copy_from_slice(members);
        self.train.fill(encoder, self.row, &mut self.filled)?;
        let input = batch(&self.filled.parity, &set.shape);
        let targets = batch(&self.filled.targets, &[set.outputs()]);
        let (outputs, pass) = self.network.forward_segments(&input);
        let loss = outputs.mse_loss(&targets.to_device(outputs.device()), Reduction::Mean);
        let told = loss.double_value(&[]);
        let parity = values(&outputs)?;
        let agreeing = self.train.agreeing(&parity, &self.filled, encoder.code().row(self.row));
        Ok(Attempt { loss, pass, told, agreeing, queries: self.filled.members.len() })
    }

    fn validate(&self, each: &mut dyn FnMut(&[f32], &[f32])) -> Result<Option<f64>> {
        let (encoder, k) = (self.encoder.as_ref(), self.encoder.code().k());
        let row = encoder.code().row(self.row);
        let (mut squares, mut outputs) = (0.0f64, 0);
        for chunk in self.validation_groups.chunks(VALIDATION_CHUNK * k) {
            let mut batch = self.validation.batch(chunk.to_vec(), k);
            self.validation.fill(encoder, self.row, &mut batch)?;
            let parity = self.network.infer(&batch.parity);
            self.validation.reconstruct(&parity, &batch, row, &mut *each);
            let pairs = parity.iter().zip(&batch.targets);
            squares += pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            outputs += parity.len();
        }
        Ok(Some(squares / outputs.max(1) as f64))
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::Model(self.network.frozen())
    }
}
