//! The training loop: weights pulled and gradients pushed through a backend, the best weights kept, all of it resumable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parapet_decoder::{Calibration, Score};
use parapet_encoder::{Code, CodeSpec};
use rand_chacha::ChaCha8Rng;

use super::groups::{GroupSampler, SamplerPosition, TrainingSet};
use super::learned_code::{LearnedCodeTask, LearnedRun};
use super::parity_model::ParityModel;
use super::task::Task;
use super::validation::Validation;
use super::weights::{Buffer, Snapshot, Weights};
use super::{StepReport, Trained};
use crate::TrainError;
use crate::backend::{
    BackendError, BackendState, EmbeddedBackend, ParameterBackend, ParameterSet, UpdateRule,
};
use crate::network::{NetworkSpec, stream};

/// Bins of the table of scores, of about a hundred reconstructions each.
const CALIBRATION_BINS: usize = 10;

/// How a parity model, or a learned code, is trained.
#[derive(Debug, Clone)]
pub struct ParityRun {
    /// The network; a learned code's encoder.
    pub network: NetworkSpec,
    /// The code, with its output transform.
    pub code: CodeSpec,
    /// Which of the code's parity rows the model is for.
    pub row: usize,
    /// Coding groups a step.
    pub groups: usize,
    /// How gradients become updates, for how many steps.
    pub rule: UpdateRule,
    /// Steps from one validation to the next; the last step is always followed by one.
    pub validate_every: u64,
    /// Part of the groups that are completed with fillers, `0.0..=1.0` (invariant CG-5).
    pub filler_share: f64,
    /// Whether the network scales what it takes by its mean and deviation.
    pub normalise: bool,
    /// Whether a network of cells learns each cell's part of the target, and not only their sum.
    pub cell_targets: bool,
    /// Weights to begin with: those of a network of this trainer, of the same layers or of those of one cell.
    pub start: Option<PathBuf>,
    /// The rest of a learned code; none for a parity model.
    pub learned: Option<LearnedRun>,
    /// Seed of everything random.
    pub seed: u64,
}

/// The best weights so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The step after which they were met.
    pub step: u64,
    /// How good they are.
    pub validation: Validation,
    /// The weights.
    pub snapshot: Snapshot,
}

/// A generator's place in its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RngPosition {
    /// Its seed.
    pub seed: [u8; 32],
    /// Its stream.
    pub stream: u64,
    /// Words that it has given.
    pub word: u128,
}

/// All that a run has to know to go on, after some step.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerState {
    /// Weights and optimiser.
    pub backend: BackendState,
    /// What the network keeps besides its weights.
    pub buffers: Vec<Buffer>,
    /// The best weights so far.
    pub best: Option<Best>,
    /// The random numbers' place.
    pub rng: RngPosition,
    /// The samples' place.
    pub sampler: SamplerPosition,
}

/// Makes the backend that is to hold a model's parameters, from their first values.
pub type MakeBackend<'a> = &'a mut dyn FnMut(ParameterSet) -> Result<Box<dyn ParameterBackend>, BackendError>;

/// The training of one parity model or learned code, step by step. Pure but for libtorch: logs, checkpoints and signals are the caller's.
#[derive(Debug)]
pub struct ParityTrainer {
    run: ParityRun,
    k: usize,
    task: Box<dyn Task>,
    weights: Weights,
    backend: Box<dyn ParameterBackend>,
    /// Training samples.
    samples: usize,
    validation: Arc<TrainingSet>,
    sampler: GroupSampler,
    rng: ChaCha8Rng,
    step: u64,
    best: Option<Best>,
}

impl ParityTrainer {
    /// A fresh model, to be trained on `set` and judged on `validation`; labels play no part.
    ///
    /// # Errors
    /// If the code is invalid or does not fit the samples, there are too few of them, the network does not take them, or the
    /// backend cannot be had.
    pub fn new(
        run: ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self, TrainError> {
        let code = Code::try_from(&run.code)?;
        for part in [&set, &validation] {
            if part.len() < code.k() {
                return Err(TrainError::TooFewSamples { found: part.len(), k: code.k() });
            }
        }
        code.transform().validate(set.outputs)?;
        let samples = set.len();
        let task: Box<dyn Task> = match &run.learned {
            None => Box::new(ParityModel::new(&run, set, Arc::clone(&validation))?),
            Some(learned) => Box::new(LearnedCodeTask::new(&run, learned, set, Arc::clone(&validation))?),
        };
        let weights = Weights::of(&task.networks())?;
        let backend = make_backend(weights.parameters().clone())?;
        let sampler = GroupSampler::new(samples, run.filler_share);
        let rng = stream(run.seed, 3);
        let (k, step, best) = (code.k(), 0, None);
        Ok(Self { run, k, task, weights, backend, samples, validation, sampler, rng, step, best })
    }

    /// A parameter server inside this process that follows `rule`.
    pub fn local(
        rule: UpdateRule,
    ) -> impl FnMut(ParameterSet) -> Result<Box<dyn ParameterBackend>, BackendError> {
        move |weights| Ok(Box::new(EmbeddedBackend::new(rule, weights)?))
    }

    /// What is trained.
    pub fn run(&self) -> &ParityRun {
        &self.run
    }

    /// Steps done.
    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Whether all steps are done.
    pub fn is_done(&self) -> bool {
        self.step >= self.run.rule.steps
    }

    /// The best weights so far.
    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// The samples that weights are chosen by.
    pub fn validation_set(&self) -> &Arc<TrainingSet> {
        &self.validation
    }

    /// Makes one step, and a validation if it is time for one.
    ///
    /// # Errors
    /// If training diverges, or the backend fails.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let steps = self.run.rule.steps;
        let (sampler, rng) = (&mut self.sampler, &mut self.rng);
        self.weights.pull(self.backend.as_mut())?;
        let attempt = self.task.attempt(self.step, &mut |group: &mut [usize]| sampler.next(group, rng))?;
        let tick = self.weights.push(self.backend.as_mut(), &attempt.loss)?;

        let loss = attempt.told;
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step as usize });
        }
        self.step += 1;
        let due = self.step.is_multiple_of(self.run.validate_every.max(1)) || self.step >= steps;
        let validation = if due { Some(self.validate()?) } else { None };
        let rows = self.step as usize * self.run.groups.max(1);
        Ok(StepReport {
            step: self.step as usize,
            steps: steps as usize,
            loss,
            agreement: attempt.agreeing as f64 / attempt.queries.max(1) as f64,
            rows,
            epoch: (rows * self.k) as f64 / self.samples as f64,
            learning_rate: tick.learning_rate,
            gradient_norm: tick.gradient_norm,
            validation,
        })
    }

    fn validate(&mut self) -> Result<Validation, TrainError> {
        self.weights.pull(self.backend.as_mut())?;
        let validation = self.task.validate()?;
        // Batch norm can go wrong without the training loss.
        if !validation.loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step as usize });
        }
        if self.best.as_ref().is_none_or(|best| validation.beats(&best.validation)) {
            let snapshot = self.weights.snapshot()?;
            self.best = Some(Best { step: self.step, validation, snapshot });
        }
        Ok(validation)
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
        self.backend.restore(&state.backend)?;
        self.weights.load_buffers(&state.buffers)?;
        self.best.clone_from(&state.best);
        self.rng = rand::SeedableRng::from_seed(state.rng.seed);
        self.rng.set_stream(state.rng.stream);
        self.rng.set_word_pos(state.rng.word);
        self.sampler.restore(&state.sampler);
        self.step = state.backend.clock;
        Ok(())
    }

    /// Writes the best weights as a safetensors file, whole or not at all; nothing if there are none yet.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn save_best(&mut self, path: &Path) -> Result<(), TrainError> {
        let Some(best) = &self.best else { return Ok(()) };
        let current = self.weights.snapshot()?;
        self.weights.load(&best.snapshot)?;
        // libtorch goes by the file's end.
        let aside = path.with_extension("partial.safetensors");
        let saved = self.task.save(&aside);
        self.weights.load(&current)?;
        saved?;
        std::fs::rename(&aside, path).map_err(|source| TrainError::Write { path: path.to_path_buf(), source })
    }

    /// What was learned, with the best weights, frozen; and what the scores of its reconstructions are worth: how often those
    /// of each score name the deployed model's class, as measured on the validation samples; none if a score is no number.
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
