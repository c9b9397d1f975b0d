//! Learning a code: an encoder and a decoder, trained through the deployed model, which stays as it
//! is (Kosaian, Rashmi, Venkataraman, *Learning a Code*, arXiv 1806.01259, sections 3 and 4).
//!
//! Parity queries `P = E(X_1 .. X_k)` go through the deployed model F, and gradients of the loss
//! come back through it to E. For each pattern of missing outputs of a group ([`patterns`]) D is
//! given what is there, zeros in place of the rest, and learns what F says of the missing queries.
//! Outputs are in the code's transform, before D and after it.

pub(super) mod loss;
mod patterns;

use std::rc::Rc;
use std::sync::Arc;

use parapet_decoder::Score;
use parapet_encoder::Code;
use tch::{Tensor, no_grad};

use loss::Domain;
pub use loss::Loss;
use patterns::{Pattern, Selection};

use super::groups::{CodedSet, GroupSampler, TrainingSet, moments};
use super::parity::{LearnedRun, ParityRun};
use super::task::{Attempt, StepRandomness, Task};
use super::validation::{CHUNK, Validation, fixed_groups};
use super::{NORMALISATION_GROUPS, Trained};
use crate::TrainError;
use crate::deployed::Differentiable;
use crate::network::{Network, Normalisation, batch, stream};

/// One code's networks.
#[derive(Debug)]
pub(super) struct LearnedCodeTask {
    k: usize,
    r: usize,
    encoder: Network,
    decoder: Network,
    through: Rc<dyn Differentiable>,
    domain: Domain,
    loss: Loss,
    train: CodedSet,
    validation: CodedSet,
    validation_groups: Vec<usize>,
    patterns: Vec<Pattern>,
    /// Samples of a step's groups, one group after another.
    members: Vec<usize>,
}

/// Results of a batch of groups.
struct Forward {
    /// Reconstructions in the transform's domain, `[count, outputs]`.
    made: Tensor,
    wanted: Tensor,
}

impl LearnedCodeTask {
    pub(super) fn new(
        run: &ParityRun,
        learned: &LearnedRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
    ) -> Result<Self, TrainError> {
        let code = Code::try_from(&run.code)?;
        let (k, r) = (code.k(), code.r());
        let (shape, outputs) = (group_shape(&set.shape, k), set.outputs());
        let mut rng = stream(run.seed, 2);
        let mut encoder = Network::new(&run.network, &shape, r * set.sample_len(), &mut rng)?;
        let mut decoder = Network::new(
            &learned.decoder,
            &[(k + r) * outputs],
            k * outputs,
            &mut rng,
        )?;
        let train = CodedSet::new(set, code.transform());
        let (mean, deviation) = moments(&train.set.inputs);
        encoder.scale_output(deviation, mean);
        let (mean, deviation) = train.moments();
        decoder.scale_output(deviation, mean);
        if run.normalise {
            let mut sampler = GroupSampler::new(train.set.len(), 0.0);
            let mut rng = stream(run.seed, 7);
            let mut members = vec![0; NORMALISATION_GROUPS * k];
            members
                .chunks_exact_mut(k)
                .for_each(|group| sampler.next(group, &mut rng));
            let (queries, _) = gather(&train, &members);
            encoder.normalise(&Normalisation::of(&queries, &shape))?;
        }
        let validation = CodedSet::new(validation, code.transform());
        Ok(Self {
            k,
            r,
            encoder,
            decoder,
            through: Rc::clone(&learned.through),
            domain: Domain::of(code.transform()),
            loss: learned.loss,
            validation_groups: fixed_groups(validation.set.len(), k, run.seed),
            train,
            validation,
            patterns: patterns::all(k, r),
            members: vec![0; run.groups.max(1) * k],
        })
    }

    /// Reconstructs the groups `members` of `set` after each of `patterns`.
    fn forward(
        &self,
        set: &CodedSet,
        members: &[usize],
        patterns: &[Pattern],
        train: bool,
    ) -> Result<Forward, TrainError> {
        let (k, r, outputs) = (self.k as i64, self.r as i64, set.set.outputs() as i64);
        let groups = (members.len() / self.k) as i64;
        let (queries, known) = gather(set, members);
        let parity = self
            .encoder
            .forward_t(&batch(&queries, self.encoder.input_shape()), train);
        let dims: Vec<i64> = std::iter::once(-1)
            .chain(set.set.shape.iter().map(|&axis| axis as i64))
            .collect();
        let answers = self
            .domain
            .apply(&self.through.forward(&parity.view(dims.as_slice()))?);
        let (known, answers) = (
            Tensor::from_slice(&known).to_device(parity.device()),
            answers.to_device(parity.device()),
        );
        let known = known.view([groups, k * outputs]);
        let all = Tensor::cat(&[&known, &answers.view([groups, r * outputs])], 1);

        let Selection {
            there,
            decoded,
            slots,
        } = Selection::of(patterns, self.k, self.r, parity.device());
        let there = there.repeat_interleave_self_int(outputs, 1, None);
        let given = (all.unsqueeze(1) * there.unsqueeze(0)).reshape([-1, (k + r) * outputs]);
        let decoded_all = self.decoder.forward_t(&given, train);
        let made = decoded_all
            .view([groups, -1, outputs])
            .index_select(1, &decoded);
        let wanted = known.view([groups, k, outputs]).index_select(1, &slots);
        Ok(Forward {
            made: made.reshape([-1, outputs]),
            wanted: wanted.reshape([-1, outputs]),
        })
    }

    /// Hands on the validation groups, with each of their predictions missing alone.
    fn each_validation_chunk(
        &self,
        mut each: impl FnMut(&Forward) -> Result<(), TrainError>,
    ) -> Result<(), TrainError> {
        let patterns: Vec<Pattern> = self
            .patterns
            .iter()
            .filter(|pattern| pattern.is_one_prediction())
            .copied()
            .collect();
        for chunk in self.validation_groups.chunks(CHUNK * self.k) {
            let forward = no_grad(|| self.forward(&self.validation, chunk, &patterns, false))?;
            each(&forward)?;
        }
        Ok(())
    }
}

impl Task for LearnedCodeTask {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("encoder.", &self.encoder), ("decoder.", &self.decoder)]
    }

    fn attempt(&mut self, step: u64, draw: &mut StepRandomness<'_>) -> Result<Attempt, TrainError> {
        let mut members = std::mem::take(&mut self.members);
        members
            .chunks_exact_mut(self.k)
            .for_each(|group| draw.group(group));
        let patterns = patterns::of_step(&self.patterns, step);
        let forward = self.forward(&self.train, &members, &patterns, true)?;
        self.members = members;
        let loss = self.loss.of(&self.domain, &forward.made, &forward.wanted);
        let (agreeing, queries) = self
            .domain
            .agreeing(&forward.made.detach(), &forward.wanted);
        let told = loss.double_value(&[]);
        Ok(Attempt {
            loss,
            told,
            agreeing,
            queries,
        })
    }

    fn validate(&self) -> Result<Option<Validation>, TrainError> {
        let (mut agreeing, mut queries, mut loss) = (0, 0, 0.0);
        self.each_validation_chunk(|forward| {
            let (right, count) = self.domain.agreeing(&forward.made, &forward.wanted);
            agreeing += right;
            queries += count;
            loss += self
                .loss
                .of(&self.domain, &forward.made, &forward.wanted)
                .double_value(&[])
                * count as f64;
            Ok(())
        })?;
        let count = queries.max(1) as f64;
        Ok(Some(Validation {
            agreement: agreeing as f64 / count,
            loss: loss / count,
        }))
    }

    fn scores(&self, score: Score) -> Result<Vec<(f32, bool)>, TrainError> {
        let mut scores = Vec::new();
        let classes = self.train.set.classes;
        self.each_validation_chunk(|forward| {
            let made = values(&self.domain.invert(&forward.made))?;
            let wanted = values(&self.domain.invert(&forward.wanted))?;
            let pairs = classes.samples(&made).zip(classes.samples(&wanted));
            scores
                .extend(pairs.map(|(made, wanted)| {
                    (score.of(made), made.top_class() == wanted.top_class())
                }));
            Ok(())
        })?;
        Ok(scores)
    }

    fn freeze(self: Box<Self>) -> Trained {
        let Self {
            encoder, decoder, ..
        } = *self;
        Trained::LearnedCode {
            encoder: encoder.frozen(),
            decoder: decoder.frozen(),
        }
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

/// Queries, and what the deployed model answers in the transform's domain, of `members`,
/// one after another.
fn gather(set: &CodedSet, members: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let mut queries = Vec::with_capacity(members.len() * set.set.sample_len());
    let mut outputs = Vec::with_capacity(members.len() * set.set.outputs());
    for &index in members {
        queries.extend_from_slice(set.set.sample(index));
        outputs.extend_from_slice(set.coded(index));
    }
    (queries, outputs)
}

fn values(tensor: &Tensor) -> Result<Vec<f32>, TrainError> {
    let flat = tensor.contiguous().view([-1]);
    Ok(Vec::<f32>::try_from(flat).map_err(crate::network::NetworkError::Tensor)?)
}
