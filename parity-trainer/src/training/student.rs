//! Learning a parity model with slots: the distillation of the deployed model into a cheaper
//! network, which answers for one member of a group in each slot.
//!
//! The student learns from the deployed model's outputs for single samples (Hinton et al.,
//! *Distilling the Knowledge in a Neural Network*, 2015); in serving it meets no others.

use std::rc::Rc;
use std::sync::Arc;

use parapet_decoder::OutputKind;
use parapet_encoder::{Code, OutputTransform};
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

use super::groups::{CodedSet, moments};
use super::loss::agreeing;
use super::{Attempt, Loss, ParityRun, Task, Trained, TrainingSet};
use crate::Result;
use crate::data::Augment;
use crate::deployed::{DeployedModel, InputScaling};
use crate::network::{Network, SlotNetwork, batch, softmax, stream, values};

/// Samples that one validation looks at, at most.
pub const VALIDATION_SAMPLES: usize = 2048;
/// Divisor of scores before their softmax is learned: at 1 a student of a model that is sure of its
/// training samples learns little but their classes.
const TEMPERATURE: f64 = 2.0;
/// Passes over the samples that show the same variants: the deployed model is asked about each but
/// once, and takes as long for it as a student's whole step.
const PASSES: u64 = 4;
/// Deviations of outputs below it count as it.
const LEAST_DEVIATION: f64 = 1e-6;
/// Probabilities below it count as it.
const LEAST_PROBABILITY: f32 = 1e-7;

fn logarithms(probabilities: &mut [f32]) {
    probabilities.iter_mut().for_each(|part| *part = part.max(LEAST_PROBABILITY).ln());
}

/// Returns true if each sample's outputs are parts that add up to 1.
fn gives_probabilities(set: &TrainingSet) -> bool {
    let are_probabilities = |outputs: &[f32]| {
        let are_parts = outputs.iter().all(|output| (0.0..=1.0).contains(output));
        are_parts && (outputs.iter().sum::<f32>() - 1.0).abs() < 1e-3
    };
    let mut samples = set.answers.chunks_exact(set.outputs());
    set.agreement.kind() == OutputKind::Classes && samples.all(are_probabilities)
}

/// Fresh random variants of samples every few passes, which the deployed model answers as they are
/// first shown: one that answers patiently for whatever its student is shown teaches more than one
/// whose answers for the samples are known by heart (Beyer et al., *Knowledge distillation: A good
/// teacher is patient and consistent*, CVPR 2022).
#[derive(Debug, Clone)]
pub struct Variants {
    pub deployed: Rc<dyn DeployedModel>,
    pub augment: Augment,
    pub scaling: InputScaling,
}

impl Variants {
    /// Varies samples, each by random numbers of its own.
    fn vary(&self, shape: &[usize], samples: &mut [f32], random: impl Iterator<Item = ChaCha8Rng>) {
        self.scaling.invert(shape, samples);
        let sample_len = shape.iter().product::<usize>().max(1);
        let mut original = vec![0.0; sample_len];
        for (sample, mut rng) in samples.chunks_exact_mut(sample_len).zip(random) {
            original.copy_from_slice(sample);
            self.augment.apply(&mut rng, shape, &original, sample);
        }
        self.scaling.apply(shape, samples);
    }
}

#[derive(Debug)]
pub(super) struct Student {
    network: Network,
    k: usize,
    loss: Loss,
    /// The code's, or the scale in which numbers are learned.
    transform: OutputTransform,
    /// Factor and shift of the outputs in serving, where they are learned in another scale: steps
    /// of a learning rate would be too long for weights that give small numbers.
    scale: (f64, f64),
    /// True if the deployed model gives probabilities: the network learns their logarithms, and its
    /// softmax is served.
    has_softmax: bool,
    /// With the deployed model's answers for the variants that were shown last.
    train: CodedSet,
    validation: CodedSet,
    variants: Option<Variants>,
    /// Of each sample: the number of the variant that was shown last; that of none is 0.
    shown: Vec<u64>,
    /// Samples of a step, of all parts.
    batch: u64,
    /// Seed and first stream of the variants' random numbers.
    random: (u64, u64),
}

impl Student {
    pub(super) fn new(
        run: &ParityRun,
        code: &Code,
        (set, validation): (Arc<TrainingSet>, Arc<TrainingSet>),
        batch: usize,
    ) -> Result<Self> {
        // Rows are models of their own: each begins and goes on with other random numbers.
        let mut rng = stream(run.seed, 16 + run.row as u64);
        let mut network = Network::new(&run.network, &set.shape, set.outputs(), &mut rng)?;
        let mut transform = code.transform().clone();
        let has_softmax = transform.is_raw() && gives_probabilities(&set);
        let mut scale = (1.0, 0.0);
        if transform.is_raw() && set.agreement.kind() != OutputKind::Classes {
            let (mean, deviation) = moments(&set.answers);
            scale = (deviation.max(LEAST_DEVIATION), mean);
            let (mean, deviation) = (vec![mean as f32], vec![scale.0 as f32]);
            transform = OutputTransform::Standardised { mean, deviation };
        }
        let coded = |set| {
            let mut coded = CodedSet::new(set, &transform);
            if has_softmax {
                logarithms(&mut coded.coded);
            }
            coded
        };
        let train = coded(set);
        let (mean, deviation) = moments(&train.coded);
        network.scale_output(deviation, mean);
        if let Some(start) = run.start.as_ref().filter(|start| start.spec().is_like(&run.network)) {
            // Rows should not fail together: they begin with different halves of it.
            network.start_from(start, !run.row.is_multiple_of(2));
            let (factor, shift) = scale;
            network.fold_output(1.0 / factor, -shift / factor);
        }
        network.normalise(&train.set.inputs)?;
        Ok(Self {
            network,
            k: code.k(),
            loss: run.loss,
            validation: coded(validation),
            has_softmax,
            scale,
            transform,
            shown: vec![0; train.set.len()],
            train,
            variants: run.variants.clone(),
            batch: batch as u64,
            random: (run.seed, (run.row as u64 + 1) << 48),
        })
    }

    /// Returns the samples, or variants, that a step shows, and sees to the answers for them.
    fn show(&mut self, step: u64, members: &[usize]) -> Result<Vec<f32>> {
        let set = &self.train.set;
        let mut inputs = Vec::with_capacity(members.len() * set.sample_len());
        members.iter().for_each(|&index| inputs.extend_from_slice(set.sample(index)));
        let Some(variants) = &self.variants else { return Ok(inputs) };
        let (samples, (seed, first)) = (set.len() as u64, self.random);
        let variant = 1 + step * self.batch / (PASSES * samples);
        let number = |&index: &usize| first + variant * samples + index as u64;
        let random = members.iter().map(|index| stream(seed, number(index)));
        variants.vary(&set.shape, &mut inputs, random);
        // All, if any is new: answers depend a little on how many are asked for at a time.
        if members.iter().any(|&index| self.shown[index] != variant) {
            let mut answers = variants.deployed.infer(&inputs)?;
            self.transform.apply(&mut answers, set.outputs());
            if self.has_softmax {
                logarithms(&mut answers);
            }
            for (&index, answer) in members.iter().zip(answers.chunks_exact(set.outputs())) {
                self.train.set_coded(index, answer);
                self.shown[index] = variant;
            }
        }
        Ok(inputs)
    }

    /// The loss at the temperature, on the scale of the one without (Hinton et al., section 2). The
    /// squared error is the same at any.
    fn loss(&self, made: &Tensor, wanted: &Tensor) -> Tensor {
        let [made, wanted] = [made, wanted].map(|outputs| outputs / TEMPERATURE);
        self.loss.of(&self.transform, &made, &wanted) * (TEMPERATURE * TEMPERATURE)
    }
}

impl Task for Student {
    fn networks(&self) -> Vec<(&'static str, &Network)> {
        vec![("", &self.network)]
    }

    fn attempt(&mut self, step: u64, members: &[usize], _: &mut ChaCha8Rng) -> Result<Attempt> {
        let inputs = self.show(step, members)?;
        let set = &self.train.set;
        let targets = members.iter().flat_map(|&index| self.train.coded(index).iter().copied());
        let targets = batch(&targets.collect::<Vec<f32>>(), &[set.outputs()]);
        let (outputs, pass) = self.network.forward_segments(&batch(&inputs, &set.shape));
        let targets = targets.to_device(outputs.device());
        let loss = self.loss(&outputs, &targets);
        let agreeing = agreeing(&set.agreement, &self.transform, &outputs, &targets)?;
        Ok(Attempt { told: loss.double_value(&[]), loss, pass, agreeing, queries: members.len() })
    }

    fn validate(&self, each: &mut dyn FnMut(&[f32], &[f32])) -> Result<Option<f64>> {
        let set = &self.validation.set;
        let count = set.len().min(VALIDATION_SAMPLES);
        let inputs = set.inputs.get(..count * set.sample_len()).unwrap_or_default();
        let mut made = self.network.infer(inputs);
        let wanted = self.validation.coded.get(..made.len()).unwrap_or_default();
        let shape = [set.outputs()];
        let loss = self.loss(&batch(&made, &shape), &batch(wanted, &shape));
        self.transform.invert(&mut made);
        if self.has_softmax {
            softmax(&mut made, set.outputs());
        }
        for (index, made) in made.chunks_exact(set.outputs()).enumerate() {
            each(made, set.answer(index));
        }
        Ok(values(&loss)?.first().copied().map(f64::from))
    }

    fn freeze(mut self: Box<Self>) -> Trained {
        self.network.fold_output(self.scale.0, self.scale.1);
        Trained::Slots(SlotNetwork::new(
            self.network.frozen(),
            self.k,
            &self.train.set.output_shape,
            self.has_softmax,
        ))
    }
}
