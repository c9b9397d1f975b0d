//! The training loop: weights pulled and gradients pushed through a backend, the best weights kept,
//! all of it resumable.

use std::path::Path;
use std::sync::Arc;

use parapet_decoder::{Calibration, Score};
use parapet_encoder::Code;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::deployed::{DeployedRun, LabelledModel};
use super::groups::{GroupSampler, SamplerPosition, TrainingSet};
use super::learned_code::LearnedCodeTask;
use super::parity::ParityRun;
use super::parity_model::ParityModel;
use super::task::{StepRandomness, Task};
use super::validation::Validation;
use super::weights::{Buffer, Snapshot, Weights};
use super::{StepReport, Trained};
use crate::TrainError;
use crate::backend::{
    BackendError, BackendState, InProcessBackend, OptimiserConfig, ParameterBackend, ParameterSet,
};
use crate::data::Samples;
use crate::network::{Network, stream};

/// Bins of the table of scores, of about a hundred reconstructions each.
const CALIBRATION_BINS: usize = 10;

/// The best weights so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The step after which they were met.
    pub step: u64,
    pub validation: Validation,
    pub snapshot: Snapshot,
}

/// A generator's place in its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RngPosition {
    pub seed: [u8; 32],
    pub stream: u64,
    /// Words that it has given.
    pub word: u128,
}

/// All that a run has to know to go on, after some step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Weights and optimiser.
    pub backend: BackendState,
    /// Buffers of the network, besides its weights.
    pub buffers: Vec<Buffer>,
    /// The best weights so far.
    pub best: Option<Best>,
    /// The random numbers' place.
    pub rng: RngPosition,
    pub sampler: SamplerPosition,
}

/// Makes the backend that is to hold a model's parameters, from their first values.
pub type MakeBackend<'a> =
    &'a mut dyn FnMut(ParameterSet) -> Result<Box<dyn ParameterBackend>, BackendError>;

/// The training of one model or learned code, step by step. Pure but for libtorch: logs,
/// checkpoints and signals are the caller's.
#[derive(Debug)]
pub struct Trainer {
    plan: Plan,
    task: Box<dyn Task>,
    weights: Weights,
    backend: Box<dyn ParameterBackend>,
    sampler: GroupSampler,
    rng: ChaCha8Rng,
    step: u64,
    best: Option<Best>,
}

/// Settings that every run has.
#[derive(Debug, Clone, Copy)]
struct Plan {
    steps: u64,
    /// Groups a step; a part of a step, where several processes make it.
    groups: usize,
    /// Samples a group.
    k: usize,
    samples: usize,
    /// Steps from one validation to the next; the last step is always followed by one.
    validate_every: u64,
    /// Part of the groups that are completed with fillers.
    filler_share: f64,
}

impl Trainer {
    /// A fresh parity model or learned code, to be trained on `set` and judged on `validation`;
    /// labels play no part.
    ///
    /// # Errors
    /// If the code is invalid or does not fit the samples, there are too few of them, the network
    /// does not take them, or the backend cannot be had.
    pub fn parity(
        run: ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self, TrainError> {
        let code = Code::try_from(&run.code)?;
        for part in [&set, &validation] {
            if part.len() < code.k() {
                return Err(TrainError::TooFewSamples {
                    found: part.len(),
                    k: code.k(),
                });
            }
        }
        code.transform().validate(set.outputs())?;
        let plan = Plan {
            steps: run.rule.steps,
            groups: run.groups.max(1),
            k: code.k(),
            samples: set.len(),
            validate_every: run.validate_every.max(1),
            filler_share: run.filler_share,
        };
        let task: Box<dyn Task> = match &run.learned {
            None => Box::new(ParityModel::new(&run, set, validation)?),
            Some(learned) => Box::new(LearnedCodeTask::new(&run, learned, set, validation)?),
        };
        Self::new(plan, task, stream(run.seed, 3), make_backend)
    }

    /// A fresh model, to be trained on the labels of `samples`, of which there are `classes`, for
    /// [`DeployedRun::rule`]'s steps. It ends with the weights of the last step.
    ///
    /// # Errors
    /// If the network does not take the samples, a sample has no label, or the backend
    /// cannot be had.
    pub fn deployed(
        run: &DeployedRun,
        samples: Arc<Samples>,
        classes: usize,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self, TrainError> {
        let plan = Plan {
            steps: run.rule(samples.len()).steps,
            groups: run.batch(samples.len()),
            k: 1,
            samples: samples.len(),
            validate_every: u64::MAX,
            filler_share: 0.0,
        };
        let task = LabelledModel::new(run, samples, classes)?;
        Self::new(plan, Box::new(task), stream(run.seed, 1), make_backend)
    }

    fn new(
        plan: Plan,
        task: Box<dyn Task>,
        rng: ChaCha8Rng,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self, TrainError> {
        let weights = Weights::of(&task.networks())?;
        let backend = make_backend(weights.parameters().clone())?;
        let sampler = GroupSampler::new(plan.samples, plan.filler_share);
        Ok(Self {
            plan,
            task,
            weights,
            backend,
            sampler,
            rng,
            step: 0,
            best: None,
        })
    }

    /// A parameter server inside this process that follows `rule`.
    pub fn local(
        rule: OptimiserConfig,
    ) -> impl FnMut(ParameterSet) -> Result<Box<dyn ParameterBackend>, BackendError> {
        move |weights| Ok(Box::new(InProcessBackend::new(rule, weights)?))
    }

    /// Steps in all.
    pub fn steps(&self) -> u64 {
        self.plan.steps
    }

    pub fn steps_done(&self) -> u64 {
        self.step
    }

    pub fn is_done(&self) -> bool {
        self.step >= self.plan.steps
    }

    /// The best weights so far.
    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Returns the backend's news since the last call, a line each.
    pub fn news(&mut self) -> Vec<String> {
        self.backend.news()
    }

    /// Makes one step, and a validation if it is time for one.
    ///
    /// # Errors
    /// If training diverges, or the backend fails.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let Plan {
            steps,
            groups,
            k,
            samples,
            validate_every,
            ..
        } = self.plan;
        self.weights.pull(self.backend.as_mut())?;
        let parts = self.draw_parts();
        let (mut loss, mut agreeing, mut queries, mut attempts) = (0.0, 0, 0, 0u32);
        let tick = loop {
            for part in self.backend.parts_to_do()? {
                let drawn = parts.get(part).map(|part| part.iter());
                let draw = &mut StepRandomness {
                    sampler: &mut self.sampler,
                    rng: &mut self.rng,
                    drawn,
                };
                let attempt = self.task.attempt(self.step, draw)?;
                // Its gradients would not be finite either, and the backend could not say why.
                if !attempt.told.is_finite() {
                    return Err(TrainError::Diverged {
                        step: self.step as usize,
                    });
                }
                self.weights
                    .push(self.backend.as_mut(), part, &attempt.loss)?;
                loss += attempt.told;
                agreeing += attempt.agreeing;
                queries += attempt.queries;
                attempts += 1;
            }
            if let Some(tick) = self.backend.settle()? {
                break tick;
            }
        };
        let loss = loss / f64::from(attempts.max(1));
        self.step += 1;
        let due = self.step.is_multiple_of(validate_every) || self.step >= steps;
        let validation = if due { self.validate()? } else { None };
        let rows = self.step as usize * groups * self.backend.parts();
        Ok(StepReport {
            step: self.step as usize,
            steps: steps as usize,
            loss,
            agreement: agreeing as f64 / queries.max(1) as f64,
            rows,
            epoch: (rows * k) as f64 / samples as f64,
            learning_rate: tick.learning_rate,
            gradient_norm: tick.gradient_norm,
            validation,
        })
    }

    /// The samples of all parts of the next step, where several processes make it: all of them draw
    /// all, so that they agree without a word. A process that came later, or had nothing to do,
    /// draws those of the steps that it has missed, too.
    fn draw_parts(&mut self) -> Vec<Vec<usize>> {
        let Some(done) = self.backend.steps_done() else {
            return Vec::new();
        };
        let Plan { groups, k, .. } = self.plan;
        loop {
            let mut parts = vec![vec![0; groups * k]; self.backend.parts()];
            for group in parts
                .iter_mut()
                .flat_map(|part| part.chunks_exact_mut(k.max(1)))
            {
                self.sampler.next(group, &mut self.rng);
            }
            if self.step >= done {
                return parts;
            }
            self.step += 1;
        }
    }

    fn validate(&mut self) -> Result<Option<Validation>, TrainError> {
        self.weights.pull(self.backend.as_mut())?;
        let Some(validation) = self.task.validate()? else {
            return Ok(None);
        };
        // Batch norm can go wrong without the training loss.
        if !validation.loss.is_finite() {
            return Err(TrainError::Diverged {
                step: self.step as usize,
            });
        }
        if self
            .best
            .as_ref()
            .is_none_or(|best| validation.beats(&best.validation))
        {
            let snapshot = self.weights.snapshot()?;
            self.best = Some(Best {
                step: self.step,
                validation,
                snapshot,
            });
        }
        Ok(Some(validation))
    }

    /// Everything that a run needs to go on from here, bit for bit.
    ///
    /// # Errors
    /// If the backend cannot give its state.
    pub fn state(&mut self) -> Result<TrainerState, TrainError> {
        Ok(TrainerState {
            backend: self.backend.state()?,
            buffers: self.weights.buffers()?,
            best: self.best.clone(),
            rng: RngPosition {
                seed: self.rng.get_seed(),
                stream: self.rng.get_stream(),
                word: self.rng.get_word_pos(),
            },
            sampler: self.sampler.position(),
        })
    }

    /// Goes on from `state`, which must be of a run like this one.
    ///
    /// # Errors
    /// If it is another model's.
    pub fn restore(&mut self, state: &TrainerState) -> Result<(), TrainError> {
        self.weights.load_buffers(&state.buffers)?;
        self.backend
            .restore(&state.backend, &self.weights.flat_buffers()?)?;
        self.best.clone_from(&state.best);
        self.rng = rand::SeedableRng::from_seed(state.rng.seed);
        self.rng.set_stream(state.rng.stream);
        self.rng.set_word_pos(state.rng.word);
        self.sampler.restore(&state.sampler);
        self.step = state.backend.clock;
        Ok(())
    }

    /// Writes the best weights as a safetensors file, whole or not at all; nothing if there
    /// are none yet.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save_best(&mut self, path: &Path) -> Result<(), TrainError> {
        let Some(best) = &self.best else {
            return Ok(());
        };
        let current = self.weights.snapshot()?;
        self.weights.load(&best.snapshot)?;
        // libtorch goes by the file's end.
        let aside = path.with_extension("partial.safetensors");
        let saved = Network::save_all(&self.task.networks(), &aside);
        self.weights.load(&current)?;
        saved?;
        std::fs::rename(&aside, path).map_err(|source| TrainError::Write {
            path: path.to_path_buf(),
            source,
        })
    }

    /// Returns the best network (without validations: the last), frozen; and its calibration: the
    /// agreement with the deployed model's class for each score, as measured on the validation
    /// samples; none if a score is no number, or nothing is reconstructed.
    ///
    /// # Errors
    /// If libtorch does not take them.
    pub fn finish(mut self) -> Result<(Trained, Option<Calibration>), TrainError> {
        match self.best.take() {
            Some(best) => self.weights.load(&best.snapshot)?,
            None => self.weights.pull(self.backend.as_mut())?,
        }
        let score = Score::default();
        let measured = self.task.scores(score)?;
        let calibration = Calibration::fit(score, &measured, CALIBRATION_BINS);
        Ok((self.task.freeze(), calibration))
    }
}
