//! The training loop: weights pulled and gradients pushed through a backend, the best weights kept,
//! all of it resumable.

use std::path::Path;
use std::sync::Arc;

use parapet_decoder::{Calibration, Score};
use parapet_encoder::{Code, OutputTransform};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::deployed::LabelledModel;
use super::groups::{GroupSampler, SamplerPosition, moments};
use super::learned_code::LearnedCodeTask;
use super::parity_model::ParityModel;
use super::weights::{Buffer, Snapshot, Weights};
use super::{DeployedRun, ParityRun, StepRandomness, StepReport, Task, Trained};
use super::{TrainingSet, Validation};
use crate::backend::{
    BackendError, BackendState, InProcessBackend, OptimiserConfig, ParameterBackend, ParameterSet,
};
use crate::data::Samples;
use crate::network::{Network, stream};
use crate::{Result, TrainError};

/// Bins of the table of scores, of about a hundred reconstructions each.
const CALIBRATION_BINS: usize = 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub step: u64,
    pub validation: Validation,
    pub snapshot: Snapshot,
}

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
    pub backend: BackendState,
    pub buffers: Vec<Buffer>,
    pub best: Option<Best>,
    pub rng: RngPosition,
    pub sampler: SamplerPosition,
}

type Backend = Result<Box<dyn ParameterBackend>, BackendError>;

/// Makes the backend that is to hold a model's parameters, from their first values.
pub type MakeBackend<'a> = &'a mut dyn FnMut(ParameterSet) -> Backend;

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

#[derive(Debug, Clone, Copy)]
struct Plan {
    steps: u64,
    /// Groups a step; a part of a step, where several processes make it.
    groups: usize,
    k: usize,
    /// Steps from one validation to the next; the last step is always followed by one.
    validate_every: u64,
}

impl Trainer {
    /// A fresh parity model or learned code, to be trained on `set` and judged on `validation`;
    /// labels play no part.
    pub fn parity(
        run: ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self> {
        let code = Code::try_from(&run.code)?;
        for part in [&set, &validation] {
            if part.len() < code.k() {
                let (found, k) = (part.len(), code.k());
                return Err(TrainError::TooFewSamples { found, k });
            }
        }
        code.transform().validate(set.outputs())?;
        let plan = Plan {
            steps: run.rule.steps,
            groups: run.groups.max(1),
            k: code.k(),
            validate_every: run.validate_every.max(1),
        };
        let sampler = GroupSampler::new(set.len(), run.filler_share);
        let task: Box<dyn Task> = match &run.learned {
            None => Box::new(ParityModel::new(&run, set, validation)?),
            Some(learned) => Box::new(LearnedCodeTask::new(&run, learned, set, validation)?),
        };
        Self::new(plan, task, (sampler, stream(run.seed, 3)), make_backend)
    }

    /// A fresh model, to be trained on the labels of `samples`, of which there are `classes`, for
    /// [`DeployedRun::rule`]'s steps. It ends with the weights of the last step.
    pub fn deployed(
        run: &DeployedRun,
        samples: Arc<Samples>,
        classes: usize,
        make_backend: MakeBackend<'_>,
    ) -> Result<Self> {
        let plan = Plan {
            steps: run.rule(samples.len()).steps,
            groups: run.batch(samples.len()),
            k: 1,
            validate_every: u64::MAX,
        };
        let sampler = GroupSampler::new(samples.len(), 0.0);
        let task = Box::new(LabelledModel::new(run, samples, classes)?);
        Self::new(plan, task, (sampler, stream(run.seed, 1)), make_backend)
    }

    fn new(
        plan: Plan,
        task: Box<dyn Task>,
        (sampler, rng): (GroupSampler, ChaCha8Rng),
        make_backend: MakeBackend<'_>,
    ) -> Result<Self> {
        let weights = Weights::of(&task.networks())?;
        let backend = make_backend(weights.parameters.clone())?;
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
    pub fn local(rule: OptimiserConfig) -> impl FnMut(ParameterSet) -> Backend {
        move |weights| Ok(Box::new(InProcessBackend::new(rule, weights)?))
    }

    pub fn steps(&self) -> u64 {
        self.plan.steps
    }

    pub fn steps_done(&self) -> u64 {
        self.step
    }

    pub fn is_done(&self) -> bool {
        self.step >= self.plan.steps
    }

    pub fn best(&self) -> Option<&Best> {
        self.best.as_ref()
    }

    /// Returns the backend's news since the last call, a line each.
    pub fn news(&mut self) -> Vec<String> {
        self.backend.news()
    }

    /// Makes one step, and a validation if it is time for one.
    pub fn step(&mut self) -> Result<StepReport> {
        let plan = self.plan;
        self.weights.pull(self.backend.as_mut())?;
        let parts = self.draw_parts();
        let (mut loss, mut agreeing, mut queries, mut attempts) = (0.0, 0, 0, 0u32);
        let tick = loop {
            for part in self.backend.parts_to_do()? {
                let mut draw = StepRandomness {
                    sampler: &mut self.sampler,
                    rng: &mut self.rng,
                    drawn: parts.get(part).map(|part| part.iter()),
                };
                let attempt = self.task.attempt(self.step, &mut draw)?;
                // Its gradients would not be finite either, and the backend could not say why.
                self.check_finite(attempt.told)?;
                let backend = self.backend.as_mut();
                self.weights.push(backend, part, &attempt.loss)?;
                loss += attempt.told;
                agreeing += attempt.agreeing;
                queries += attempt.queries;
                attempts += 1;
            }
            if let Some(tick) = self.backend.settle()? {
                break tick;
            }
        };
        self.step += 1;
        let is_due = self.step.is_multiple_of(plan.validate_every) || self.is_done();
        let validation = if is_due { self.validate()? } else { None };
        let rows = self.step as usize * plan.groups * self.backend.parts();
        let samples = self.sampler.position.order.len();
        Ok(StepReport {
            step: self.step as usize,
            steps: plan.steps as usize,
            loss: loss / f64::from(attempts.max(1)),
            agreement: agreeing as f64 / queries.max(1) as f64,
            rows,
            epoch: (rows * plan.k) as f64 / samples as f64,
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
            for group in parts.iter_mut().flat_map(|part| part.chunks_exact_mut(k)) {
                self.sampler.next(group, &mut self.rng);
            }
            if self.step >= done {
                return parts;
            }
            self.step += 1;
        }
    }

    fn validate(&mut self) -> Result<Option<Validation>> {
        self.weights.pull(self.backend.as_mut())?;
        let Some(validation) = self.task.validate()? else {
            return Ok(None);
        };
        // Batch norm can go wrong without the training loss.
        self.check_finite(validation.loss)?;
        let best = self.best.as_ref();
        if best.is_none_or(|best| validation.beats(&best.validation)) {
            let (step, snapshot) = (self.step, self.weights.snapshot()?);
            self.best = Some(Best {
                step,
                validation,
                snapshot,
            });
        }
        Ok(Some(validation))
    }

    fn check_finite(&self, loss: f64) -> Result<()> {
        let step = self.step as usize;
        let diverged = TrainError::Diverged { step };
        loss.is_finite().then_some(()).ok_or(diverged)
    }

    /// Everything that a run needs to go on from here, bit for bit.
    pub fn state(&mut self) -> Result<TrainerState> {
        Ok(TrainerState {
            backend: self.backend.state()?,
            buffers: self.weights.buffers()?,
            best: self.best.clone(),
            rng: RngPosition {
                seed: self.rng.get_seed(),
                stream: self.rng.get_stream(),
                word: self.rng.get_word_pos(),
            },
            sampler: self.sampler.position.clone(),
        })
    }

    pub fn restore(&mut self, state: &TrainerState) -> Result<()> {
        self.weights.load_buffers(&state.buffers)?;
        let buffers = self.weights.flat_buffers()?;
        self.backend.restore(&state.backend, &buffers)?;
        self.best.clone_from(&state.best);
        self.rng = rand::SeedableRng::from_seed(state.rng.seed);
        self.rng.set_stream(state.rng.stream);
        self.rng.set_word_pos(state.rng.word);
        self.sampler.position.clone_from(&state.sampler);
        self.step = state.backend.clock;
        Ok(())
    }

    /// Writes the best weights as a safetensors file, whole or not at all; nothing if there
    /// are none yet.
    pub fn save_best(&mut self, path: &Path) -> Result<()> {
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
        let renamed = std::fs::rename(&aside, path);
        let path = path.to_path_buf();
        renamed.map_err(|source| TrainError::Write { path, source })
    }

    /// Returns the best network (without validations: the last), frozen; and its calibration: the
    /// agreement with the deployed model's class for each score, as measured on the validation
    /// samples; none if a score is no number, or nothing is reconstructed.
    pub fn finish(mut self) -> Result<(Trained, Option<Calibration>)> {
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

/// Choice of the output transform that the code adds in: where a deployed model's outputs are badly
/// scaled it decides everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum TransformChoice {
    /// By short trials of each that fits, on validation data.
    Auto,
    /// Outputs as they are, as in ParM.
    #[default]
    Raw,
    /// Less their mean, over their standard deviation.
    Standardised,
    /// Log-probabilities, clamped from below.
    LogSoftmax,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TransformTrial {
    pub transform: OutputTransform,
    pub validation: Validation,
}

/// The transforms that `choice` allows for the outputs of `set`, raw first.
pub fn candidate_transforms(choice: TransformChoice, set: &TrainingSet) -> Vec<OutputTransform> {
    let (mean, deviation) = moments(&set.answers);
    let standardised = OutputTransform::Standardised {
        mean: vec![mean as f32],
        deviation: vec![(deviation as f32).max(1e-6)],
    };
    let floor = parapet_encoder::DEFAULT_FLOOR;
    let log_softmax = OutputTransform::LogSoftmax { floor };
    match choice {
        TransformChoice::Raw => vec![OutputTransform::Raw],
        TransformChoice::Standardised => vec![standardised],
        TransformChoice::LogSoftmax => vec![log_softmax],
        TransformChoice::Auto => {
            let mut all = vec![OutputTransform::Raw, standardised, log_softmax];
            all.retain(|transform| transform.validate(set.outputs()).is_ok());
            all
        }
    }
}

/// Trains a model for `steps` steps, the schedule drawn together to that length, with the outputs
/// added in `transform`.
pub fn try_transform(
    run: &ParityRun,
    transform: OutputTransform,
    steps: u64,
    sets: (&Arc<TrainingSet>, &Arc<TrainingSet>),
    make_backend: MakeBackend<'_>,
    mut report: impl FnMut(u64),
) -> Result<TransformTrial> {
    let mut run = run.clone();
    run.code.transform = transform.clone();
    run.rule.steps = steps;
    // Only the end of a cooled-down run is compared.
    run.validate_every = u64::MAX;
    let mut trainer = Trainer::parity(run, Arc::clone(sets.0), Arc::clone(sets.1), make_backend)?;
    let (agreement, loss) = (0.0, f64::INFINITY);
    let mut validation = Validation { agreement, loss };
    while !trainer.is_done() {
        match trainer.step() {
            Ok(step) => validation = step.validation.unwrap_or(validation),
            Err(TrainError::Diverged { .. }) => break,
            Err(error) => return Err(error),
        }
        report(trainer.steps_done());
    }
    Ok(TransformTrial {
        transform,
        validation,
    })
}
