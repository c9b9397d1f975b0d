//! Learning a code: an encoder and a decoder, trained through the deployed model, which stays as it
//! is (Kosaian, Rashmi, Venkataraman, *Learning a Code*, arXiv 1806.01259, sections 3 and 4).
//!
//! Parity queries `P = E(X_1 .. X_k)` go through the deployed model F, and gradients of the loss
//! come back through it to E. For each pattern of missing outputs of a group ([`patterns`]) D is
//! given what is there, zeros in place of the rest, and learns what F says of the missing queries.
//! Outputs are in the code's transform, before D and after it.

mod patterns;

use std::rc::Rc;
use std::sync::Arc;

use parapet_encoder::{Code, OutputTransform};
use rand_chacha::ChaCha8Rng;
use tch::{Tensor, no_grad};

use patterns::Pattern;

use super::groups::{CodedSet, fixed_groups, moments, random_groups};
use super::loss::{self, agreeing};
use super::{Attempt, LearnedRun, Loss, ParityRun, Task, Trained};
use super::{TrainingSet, VALIDATION_CHUNK};
use crate::Result;
use crate::deployed::Differentiable;
use crate::network::{Network, Pass, batch, stream, values};

#[derive(Debug)]
pub(super) struct LearnedCodeTask {
    k: usize,
    r: usize,
    encoder: Network,
    decoder: Network,
    through: Rc<dyn Differentiable>,
    /// Of outputs, as the decoder takes and gives them.
    transform: OutputTransform,
    loss: Loss,
    train: CodedSet,
    validation: CodedSet,
    validation_groups: Vec<usize>,
    patterns: Vec<Pattern>,
}

impl LearnedCodeTask {
    pub(super) fn new(
        run: &ParityRun,
        learned: &LearnedRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
    ) -> Result<Self> {
        let code = Code::try_from(&run.code)?;
        let (k, r) = (code.k(), code.r());
        let (shape, outputs) = (group_shape(&set.shape, k), set.outputs());
        let mut rng = stream(run.seed, 2);
        let mut encoder = Network::new(&run.network, &shape, r * set.sample_len(), &mut rng)?;
        let given = [(k + r) * outputs];
        let mut decoder = Network::new(&learned.decoder, &given, k * outputs, &mut rng)?;
        let train = CodedSet::new(set, code.transform());
        let (mean, deviation) = moments(&train.set.inputs);
        encoder.scale_output(deviation, mean);
        let (mean, deviation) = moments(&train.coded);
        decoder.scale_output(deviation, mean);
        let (queries, _) = gather(&train, &random_groups(&train, k, run.seed));
        encoder.normalise(&queries)?;
        let validation = CodedSet::new(validation, code.transform());
        Ok(Self {
            k,
            r,
            encoder,
            decoder,
            through: Rc::clone(&learned.through),
            transform: code.transform().clone(),
            loss: run.loss,
            validation_groups: fixed_groups(validation.set.len(), k, run.seed),
            train,
            validation,
            patterns: patterns::all(k, r),
        })
    }

    /// Reconstructs the groups `members` of `set` after each of `patterns`: `[count, outputs]` as
    /// they are and as they should be, in the transform's domain.
    fn forward(
        &self,
        set: &CodedSet,
        members: &[usize],
        patterns: &[Pattern],
        train: bool,
    ) -> Result<(Tensor, Tensor)> {
        let (k, r, outputs) = (self.k as i64, self.r as i64, set.set.outputs() as i64);
        let groups = (members.len() / self.k) as i64;
        let (queries, known) = gather(set, members);
        let parity = self.encoder.forward_t(&batch(&queries, &self.encoder.input_shape), train);
        let (device, sample) = (parity.device(), set.set.shape.iter());
        let mut dims = vec![-1];
        dims.extend(sample.map(|&axis| axis as i64));
        let answers = self.through.forward(&parity.view(dims.as_slice()))?;
        let answers = loss::apply(&self.transform, &answers).to_device(device);
        let known = Tensor::from_slice(&known).to_device(device).view([groups, k * outputs]);
        let all = Tensor::cat(&[&known, &answers.view([groups, r * outputs])], 1);

        let [there, places, slots] = patterns::selection(patterns, self.k, self.r, device);
        let there = there.repeat_interleave_self_int(outputs, 1, None);
        let given = (all.unsqueeze(1) * there.unsqueeze(0)).reshape([-1, (k + r) * outputs]);
        let decoded = self.decoder.forward_t(&given, train).view([groups, -1, outputs]);
        let made = decoded.index_select(1, &places);
        let wanted = known.view([groups, k, outputs]).index_select(1, &slots);
        let rows = [-1, outputs];
        Ok((made.reshape(rows), wanted.reshape(rows)))
    }
}

impl Task for LearnedCodeTask {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("encoder.", &self.encoder), ("decoder.", &self.decoder)]
    }

    fn attempt(&mut self, step: u64, members: &[usize], _: &mut ChaCha8Rng) -> Result<Attempt> {
        let patterns = patterns::of_step(&self.patterns, step);
        let (made, wanted) = self.forward(&self.train, members, &patterns, true)?;
        let loss = self.loss.of(&self.transform, &made, &wanted);
        let agreeing = agreeing(&self.train.set.agreement, &self.transform, &made, &wanted)?;
        let queries = made.size()[0] as usize;
        Ok(Attempt { told: loss.double_value(&[]), loss, pass: Pass::default(), agreeing, queries })
    }

    /// Each prediction is missing alone.
    fn validate(&self, each: &mut dyn FnMut(&[f32], &[f32])) -> Result<Option<f64>> {
        let mut patterns = self.patterns.clone();
        patterns.retain(|pattern| pattern.count_ones() == 1);
        let outputs = self.train.set.outputs();
        let (mut loss, mut queries) = (0.0, 0.0);
        for chunk in self.validation_groups.chunks(VALIDATION_CHUNK * self.k) {
            let forward = || self.forward(&self.validation, chunk, &patterns, false);
            let (made, wanted) = no_grad(forward)?;
            let (count, mean) =
                (made.size()[0] as f64, self.loss.of(&self.transform, &made, &wanted));
            loss += mean.double_value(&[]) * count;
            queries += count;
            let made = values(&loss::invert(&self.transform, &made))?;
            let wanted = values(&loss::invert(&self.transform, &wanted))?;
            for (made, wanted) in made.chunks(outputs).zip(wanted.chunks(outputs)) {
                each(made, wanted);
            }
        }
        Ok(Some(loss / f64::max(queries, 1.0)))
    }

    fn freeze(self: Box<Self>) -> Trained {
        Trained::LearnedCode { encoder: self.encoder.frozen(), decoder: self.decoder.frozen() }
    }
}

/// The shape in which k samples lie one after another: k times the channels, or the features.
pub fn group_shape(sample: &[usize], k: usize) -> Vec<usize> {
    let mut shape = sample.to_vec();
    if let Some(first) = shape.first_mut() {
        *first *= k;
    }
    shape
}

/// Queries, and the deployed model's transformed answers, of `members`, one after another.
fn gather(set: &CodedSet, members: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let mut queries = Vec::with_capacity(members.len() * set.set.sample_len());
    let mut outputs = Vec::with_capacity(members.len() * set.set.outputs());
    for &index in members {
        queries.extend_from_slice(set.set.sample(index));
        outputs.extend_from_slice(set.coded(index));
    }
    (queries, outputs)
}
