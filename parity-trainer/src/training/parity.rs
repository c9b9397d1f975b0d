//! Trains a parity model: mean squared error against the weighted sum of the deployed model's outputs (ParM section 4.1).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parapet_decoder::{Calibration, Score};
use parapet_encoder::{CodeSpec, ConcatEncoder, Encoder, EncoderKind, build_encoder};
use rand_chacha::ChaCha8Rng;
use tch::{Kind, Reduction};

use super::StepReport;
use super::groups::{CodedSet, GroupBatch, GroupSampler, SamplerPosition, TrainingSet};
use super::validation::{Validation, Validator};
use super::weights::{Buffer, Snapshot, Weights};
use crate::TrainError;
use crate::backend::{
    BackendError, BackendState, EmbeddedBackend, ParameterBackend, ParameterSet, UpdateRule,
};
use crate::network::{Network, NetworkSpec, Normalisation, batch, stream};

/// Groups whose parity queries say how the network scales its input.
const NORMALISATION_GROUPS: usize = 256;
/// Bins of the table of scores, of about a hundred reconstructions each.
const CALIBRATION_BINS: usize = 10;

/// How a parity model is trained.
#[derive(Debug, Clone)]
pub struct ParityRun {
    /// The network.
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
    /// Whether the network scales parity queries by their own mean and deviation.
    pub normalise: bool,
    /// Whether a network of cells learns each cell's part of the target, and not only their sum.
    pub cell_targets: bool,
    /// Weights to begin with: those of a network of this trainer, of the same layers or of those of one cell.
    pub start: Option<PathBuf>,
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

/// The training of one parity model, step by step. Pure but for libtorch: logs, checkpoints and signals are the caller's.
#[derive(Debug)]
pub struct ParityTrainer {
    run: ParityRun,
    encoder: Box<dyn Encoder>,
    network: Network,
    weights: Weights,
    backend: Box<dyn ParameterBackend>,
    coded: CodedSet,
    validator: Validator,
    sampler: GroupSampler,
    rng: ChaCha8Rng,
    filled: GroupBatch,
    /// Cells of the network that learn their part of the target; 0 for none.
    cells: usize,
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
        let encoder = build_encoder(&run.code, &set.shape)?;
        let code = encoder.code();
        if run.row >= code.r() {
            return Err(TrainError::Row { row: run.row, last: code.r() - 1, r: code.r() });
        }
        for part in [&set, &validation] {
            if part.len() < code.k() {
                return Err(TrainError::TooFewSamples { found: part.len(), k: code.k() });
            }
        }
        code.transform().validate(set.outputs)?;
        let mut network = Network::new(&run.network, &set.shape, set.outputs, &mut stream(run.seed, 2))?;
        let coded = CodedSet::new(Arc::clone(&set), code.transform());
        let (mean, deviation) = coded.moments();
        let row = code.row(run.row);
        let weight = f64::from(row.iter().sum::<f32>());
        let spread = f64::from(row.iter().map(|a| a * a).sum::<f32>()).sqrt();
        network.scale_output(deviation * spread, mean * weight);
        if let Some(path) = &run.start {
            network.start_from(path)?;
        } else if run.normalise {
            network.normalise(&normalisation(&coded, encoder.as_ref(), &run)?)?;
        }
        let weights = Weights::of(&network)?;
        let backend = make_backend(weights.parameters().clone())?;
        let validator = Validator::new(CodedSet::new(validation, code.transform()), code.k(), run.seed);
        let sampler = GroupSampler::new(set.len(), run.filler_share);
        let cells = taught_cells(&run, &network);
        let filled = coded.batch_of_cells(code.k(), run.groups.max(1), cells);
        let rng = stream(run.seed, 3);
        Ok(Self {
            run,
            encoder,
            network,
            weights,
            backend,
            coded,
            validator,
            sampler,
            rng,
            filled,
            cells,
            step: 0,
            best: None,
        })
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
        self.validator.set()
    }

    /// Makes one step, and a validation if it is time for one.
    ///
    /// # Errors
    /// If training diverges, or the backend fails.
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let (run, steps) = (&self.run, self.run.rule.steps);
        let (sampler, rng) = (&mut self.sampler, &mut self.rng);
        self.coded
            .fill(self.encoder.as_ref(), run.row, &mut self.filled, |group| sampler.next(group, rng))?;
        self.weights.pull(self.backend.as_mut())?;
        let targets = batch(&self.filled.targets, &[self.coded.set.outputs]);
        let input = batch(&self.filled.parity, &self.coded.set.shape);
        let (outputs, loss) = if self.cells > 0 {
            let cells = self.network.forward_cells(&input);
            let parts = batch(&self.filled.cell_targets, &[self.cells, self.coded.set.outputs]);
            (
                cells.sum_dim_intlist([1i64].as_slice(), false, Kind::Float),
                cells.mse_loss(&parts, Reduction::Mean),
            )
        } else {
            let outputs = self.network.forward_t(&input, true);
            let loss = outputs.mse_loss(&targets, Reduction::Mean);
            (outputs, loss)
        };
        let tick = self.weights.push(self.backend.as_mut(), &loss)?;

        // Of the sum, whatever was learned from: what validations tell, too.
        let loss = outputs.detach().mse_loss(&targets, Reduction::Mean).double_value(&[]);
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step as usize });
        }
        let mut parity = vec![0.0; self.filled.targets.len()];
        let length = parity.len();
        outputs.detach().contiguous().view([-1]).copy_data(&mut parity, length);
        let (agreeing, queries) =
            self.coded.agreeing(&parity, &self.filled, self.encoder.code().row(run.row));
        self.step += 1;
        let due = self.step.is_multiple_of(run.validate_every.max(1)) || self.step >= steps;
        let validation = if due { Some(self.validate()?) } else { None };
        let run = &self.run;
        let rows = self.step as usize * run.groups.max(1);
        Ok(StepReport {
            step: self.step as usize,
            steps: steps as usize,
            loss,
            agreement: agreeing as f64 / queries.max(1) as f64,
            rows,
            epoch: (rows * self.encoder.code().k()) as f64 / self.coded.set.len() as f64,
            learning_rate: tick.learning_rate,
            gradient_norm: tick.gradient_norm,
            validation,
        })
    }

    fn validate(&mut self) -> Result<Validation, TrainError> {
        self.weights.pull(self.backend.as_mut())?;
        let validation = self.validator.run(&self.network, self.encoder.as_ref(), self.run.row)?;
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
        let saved = self.network.save(&aside);
        self.weights.load(&current)?;
        saved?;
        std::fs::rename(&aside, path).map_err(|source| TrainError::Write { path: path.to_path_buf(), source })
    }

    /// The network with the best weights, frozen, and what its reconstructions' scores are worth.
    ///
    /// # Errors
    /// If libtorch does not take them.
    pub fn finish(mut self) -> Result<Trained, TrainError> {
        match self.best.take() {
            Some(best) => self.weights.load(&best.snapshot)?,
            None => self.weights.pull(self.backend.as_mut())?,
        }
        self.network.freeze();
        let score = Score::default();
        let measured = self.validator.scores(&self.network, self.encoder.as_ref(), self.run.row, score)?;
        let calibration = Calibration::fit(score, &measured, CALIBRATION_BINS);
        Ok(Trained { network: self.network, calibration })
    }
}

/// What a training gives.
#[derive(Debug)]
pub struct Trained {
    /// The parity model.
    pub network: Network,
    /// How often reconstructions of each score name the deployed model's class, as measured on the validation samples; none
    /// if a score is no number.
    pub calibration: Option<Calibration>,
}

/// How many cells of `network` learn their part of the target: those of a concatenation's own grid, where slot i is cell i.
fn taught_cells(run: &ParityRun, network: &Network) -> usize {
    let own = ConcatEncoder::grid(run.code.k);
    let taught = run.cell_targets && run.code.encoder == EncoderKind::Concat && network.cells() == Some(own);
    if taught { own.0 * own.1 } else { 0 }
}

/// Mean and deviation of what the network will be given: parity queries of some random groups.
fn normalisation(
    coded: &CodedSet,
    encoder: &dyn Encoder,
    run: &ParityRun,
) -> Result<Normalisation, TrainError> {
    let mut sampler = GroupSampler::new(coded.set.len(), 0.0);
    let mut rng = stream(run.seed, 7);
    let mut batch = coded.batch(encoder.code().k(), NORMALISATION_GROUPS);
    coded.fill(encoder, run.row, &mut batch, |group| sampler.next(group, &mut rng))?;
    Ok(Normalisation::of(&batch.parity, &coded.set.shape))
}
