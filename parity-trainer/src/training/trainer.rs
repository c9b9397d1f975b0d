//! The training loop, resumable: a backend for weights and gradients, the best weights kept.

use std::path::Path;
use std::sync::Arc;

use parapet_decoder::{Agreement, Calibration, OutputKind, Score};
use parapet_encoder::{Code, Decoding};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::communication::{self, LayerTraffic};
use super::deployed::LabelledModel;
use super::groups::Sampler;
use super::learned_code::LearnedCodeTask;
use super::parity_model::ParityModel;
use super::student::Student;
use super::weights::Weights;
use super::{DeployedRun, ParityRun, StepReport, Task, Trained, TrainingSet, Validation};
use crate::backend::{BackendState, OptimiserConfig, ParameterBackend, ParameterSet, Place};
use crate::data::Samples;
use crate::network::{Network, stream};
use crate::{Result, TrainError};

/// Bins of the table of scores, of about a hundred reconstructions each.
const CALIBRATION_BINS: usize = 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    pub step: u64,
    pub validation: Validation,
    pub weights: ParameterSet,
}

/// All that a run has to know to go on, after some step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    pub backend: BackendState,
    pub buffers: Vec<f32>,
    pub best: Option<Best>,
    pub rng: ChaCha8Rng,
    pub sampler: Sampler,
}

/// The training of one model or learned code, step by step. Pure but for libtorch: logs,
/// checkpoints and signals are the caller's.
#[derive(Debug)]
pub struct Trainer {
    plan: Plan,
    task: Box<dyn Task>,
    weights: Weights,
    traffic: Vec<LayerTraffic>,
    backend: Box<dyn ParameterBackend>,
    sampler: Sampler,
    parts: Vec<Vec<usize>>,
    rng: ChaCha8Rng,
    step: u64,
    best: Option<Best>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    agreement: Agreement,
    rule: OptimiserConfig,
    /// Groups of k samples a step; a part of a step, where several processes make it.
    groups: usize,
    k: usize,
    /// Steps from one validation to the next; the last step is always followed by one.
    validate_every: u64,
    /// Comparison of validations by loss ([`Validation::beats`]).
    by_loss: bool,
}

impl Trainer {
    /// A fresh parity model or learned code, to be trained on `set` and judged on `validation`;
    /// labels play no part.
    pub fn parity(
        mut run: ParityRun,
        set: Arc<TrainingSet>,
        validation: Arc<TrainingSet>,
        place: Place,
    ) -> Result<Self> {
        let code = Code::try_from(&run.code)?;
        for part in [&set, &validation] {
            let (found, k) = (part.len(), code.k());
            ensure!(found >= k, TrainError::TooFewSamples { found, k });
        }
        code.transform().validate(set.outputs())?;
        let batch = run.groups;
        run.groups = (batch / place.parts()).max(1);
        let has_slots = code.decoding() == Decoding::Slots && run.learned.is_none();
        let plan = Plan {
            agreement: set.agreement,
            rule: run.rule,
            groups: run.groups,
            // A slot learns from samples one by one.
            k: if has_slots { 1 } else { code.k() },
            validate_every: run.validate_every.max(1),
            by_loss: has_slots,
        };
        let sampler = Sampler::new(set.len());
        let task: Box<dyn Task> = match (&run.learned, code.decoding()) {
            (Some(learned), _) => Box::new(LearnedCodeTask::new(&run, learned, set, validation)?),
            (None, Decoding::Slots) => {
                Box::new(Student::new(&run, &code, (set, validation), batch)?)
            }
            (None, Decoding::Linear) => Box::new(ParityModel::new(&run, set, validation)?),
        };
        Self::new(plan, task, (sampler, stream(run.seed, 3 + ((run.row as u64) << 32))), place)
    }

    /// A fresh model, to be trained in this process on the labels of `samples`, of which there are
    /// `classes`. It ends with the weights of the last step.
    pub fn deployed(run: &DeployedRun, samples: Arc<Samples>) -> Result<Self> {
        let plan = Plan {
            agreement: run.agreement,
            rule: run.rule(samples.len()),
            groups: run.batch(samples.len()),
            k: 1,
            validate_every: u64::MAX,
            by_loss: false,
        };
        let sampler = Sampler::new(samples.len());
        let task = Box::new(LabelledModel::new(run, samples)?);
        Self::new(plan, task, (sampler, stream(run.seed, 1)), Place::InProcess)
    }

    fn new(
        plan: Plan,
        task: Box<dyn Task>,
        (sampler, rng): (Sampler, ChaCha8Rng),
        place: Place,
    ) -> Result<Self> {
        let mut weights = Weights::of(&task.networks())?;
        let parts = vec![vec![0; plan.groups * plan.k]; place.parts()];
        let networks = task.networks();
        let layers = match networks[..] {
            [(_, network)] => weights.linears(network),
            _ => Vec::new(),
        };
        let backend = place.open(plan.rule, &weights.parameters, layers.clone())?;
        let mut traffic = Vec::new();
        if let [(_, network)] = networks[..] {
            if backend.takes_segments() {
                weights.cut(network);
            }
            let shards = layers.into_iter().map(|numbers| backend.shards(numbers));
            traffic = communication::layers(network, shards, plan.groups, parts.len());
            if backend.takes_factors() {
                let chosen = traffic.iter().filter(|layer| layer.goes_as_factors());
                weights.factor(network, chosen.map(|layer| layer.layer).collect());
            }
        }
        Ok(Self { plan, task, weights, traffic, backend, sampler, parts, rng, step: 0, best: None })
    }

    pub fn steps_done(&self) -> u64 {
        self.step
    }

    /// Returns the communication of fully connected layers in a step on a cluster.
    pub fn traffic(&self) -> &[LayerTraffic] {
        &self.traffic
    }

    pub fn is_done(&self) -> bool {
        self.step >= self.plan.rule.steps
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
        self.draw_parts();
        let (mut loss, mut agreeing, mut queries, mut attempts) = (0.0, 0, 0, 0u32);
        let tick = loop {
            for part in self.backend.parts_to_do()? {
                let attempt = self.task.attempt(self.step, &self.parts[part], &mut self.rng)?;
                // Its gradients would not be finite either, and the backend could not say why.
                self.check_finite(attempt.told)?;
                loss += attempt.told;
                agreeing += attempt.agreeing;
                queries += attempt.queries;
                attempts += 1;
                self.weights.push(self.backend.as_mut(), part, attempt)?;
            }
            if let Some(tick) = self.backend.settle()? {
                break tick;
            }
        };
        self.step += 1;
        let is_due = self.step.is_multiple_of(plan.validate_every) || self.is_done();
        let validation = if is_due { self.validate()? } else { None };
        let rows = self.step as usize * plan.groups * self.parts.len();
        Ok(StepReport {
            step: self.step as usize,
            steps: plan.rule.steps as usize,
            loss: loss / f64::from(attempts.max(1)),
            agreement: agreeing as f64 / queries.max(1) as f64,
            rows,
            epoch: (rows * plan.k) as f64 / self.sampler.samples() as f64,
            learning_rate: tick.learning_rate,
            gradient_norm: tick.gradient_norm,
            validation,
        })
    }

    /// Draws the samples of all parts of the next step: processes that share it all draw all, so
    /// that they agree without a word. A process that came later, or had nothing to do, draws those
    /// of the steps that it has missed, too.
    fn draw_parts(&mut self) {
        let done = self.backend.steps_done();
        loop {
            for part in &mut self.parts {
                self.sampler.draw(part, &mut self.rng);
            }
            if self.step >= done {
                return;
            }
            self.step += 1;
        }
    }

    fn validate(&mut self) -> Result<Option<Validation>> {
        self.weights.pull(self.backend.as_mut())?;
        let (mut agreeing, mut queries) = (0, 0);
        let loss = self.task.validate(&mut |made, exact| {
            agreeing += usize::from(self.plan.agreement.agrees(made, exact));
            queries += 1;
        })?;
        let Some(loss) = loss else { return Ok(None) };
        // Batch norm can go wrong without the training loss.
        self.check_finite(loss)?;
        let agreement = agreeing as f64 / f64::from(queries.max(1));
        let validation = Validation { agreement, loss };
        let best = self.best.as_ref();
        if best.is_none_or(|best| validation.beats(&best.validation, self.plan.by_loss)) {
            self.best =
                Some(Best { step: self.step, validation, weights: self.weights.snapshot()? });
        }
        Ok(Some(validation))
    }

    fn check_finite(&self, loss: f64) -> Result<()> {
        loss.is_finite().then_some(()).ok_or(TrainError::Diverged { step: self.step as usize })
    }

    /// Everything that a run needs to go on from here, bit for bit.
    pub fn state(&mut self) -> Result<TrainerState> {
        Ok(TrainerState {
            backend: self.backend.state()?,
            buffers: self.weights.buffers()?,
            best: self.best.clone(),
            rng: self.rng.clone(),
            sampler: self.sampler.clone(),
        })
    }

    pub fn restore(&mut self, state: TrainerState) -> Result<()> {
        self.weights.load_buffers(&state.buffers)?;
        self.backend.restore(&state.backend, &state.buffers)?;
        self.step = state.backend.clock;
        self.best = state.best;
        self.rng = state.rng;
        self.sampler = state.sampler;
        Ok(())
    }

    /// Writes the best weights, if there are any yet, as a safetensors file, whole or not at all.
    pub fn save_best(&mut self, path: &Path) -> Result<()> {
        let Some(best) = &self.best else { return Ok(()) };
        let current = self.weights.snapshot()?;
        self.weights.load(&best.weights)?;
        // libtorch goes by the file's end.
        let aside = path.with_extension("partial.safetensors");
        let saved = Network::save_all(&self.task.networks(), &aside);
        self.weights.load(&current)?;
        saved?;
        std::fs::rename(&aside, path).map_err(TrainError::write(path))
    }

    /// Returns the best network (without validations: the last), frozen; and its calibration: the
    /// agreement with the deployed model for each score, as measured on the validation samples;
    /// none if a score is no number, or nothing is reconstructed.
    pub fn finish(mut self) -> Result<(Trained, Option<Calibration>)> {
        match self.best.take() {
            Some(best) => self.weights.load(&best.weights)?,
            None => self.weights.pull(self.backend.as_mut())?,
        }
        let (score, agreement) = (Score::default(), self.plan.agreement);
        let (mut measured, mut errors) = (Vec::new(), Vec::new());
        self.task.validate(&mut |made, exact| {
            measured.push((agreement.score(score, made), agreement.agrees(made, exact)));
            errors.push(agreement.error(made, exact));
        })?;
        let mut calibration = Calibration::fit(score, &measured, CALIBRATION_BINS);
        if let Some(table) = &mut calibration
            && agreement.kind() != OutputKind::Classes
        {
            errors.sort_by(f32::total_cmp);
            table.error = errors.get(errors.len() * 9 / 10).copied();
        }
        Ok((self.task.freeze(), calibration))
    }
}
