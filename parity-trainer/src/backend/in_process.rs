//! Parameters in this process: a parameter server's store, with no network around it.

use std::num::NonZeroU64;

use parapet_parameter_server::optimiser::TrainingRule;
use parapet_parameter_server::{Key, KeyRange, Keys, Layout, Rows, Store, Values};

use super::{
    BackendError, BackendState, FactoredGradients, OptimiserConfig, ParameterBackend, ParameterSet,
    Tick, check_length,
};

/// Weights in a row of the store; the last row is filled up with zeroes, which stay zeroes.
pub(super) const ROW: usize = 256;

/// The very update of a server, from one worker. Gives the weights of plain training.
#[derive(Debug)]
pub struct InProcessBackend {
    rule: OptimiserConfig,
    store: Store,
    length: usize,
    clock: u64,
    made: Option<Tick>,
}

impl InProcessBackend {
    pub fn new(rule: OptimiserConfig, weights: &[f32]) -> Result<Self, BackendError> {
        let state = BackendState {
            clock: 0,
            weights: weights.to_vec(),
            slots: vec![vec![0.0; weights.len()]; rule.optimiser.slots()],
        };
        Self::from_state(rule, &state)
    }

    fn from_state(rule: OptimiserConfig, state: &BackendState) -> Result<Self, BackendError> {
        let (length, clock) = (state.weights.len(), state.clock);
        let range = KeyRange::new(0, length.div_ceil(ROW) as Key);
        let weights = padded(state.weights.iter().copied());
        let slots = state.slots.iter().map(|slot| slot.iter().copied());
        let slots: Vec<f32> = slots.flat_map(padded).collect();
        let training =
            TrainingRule { rule, done: clock, measured_from: None, updates: NonZeroU64::MIN };
        let steps = training.set_up() as u32;
        let rows = Rows {
            range,
            keys: Keys::All,
            steps: vec![steps; weights.len() / ROW].into(),
            values: Values::F32(weights.into()),
            state: Values::F32(slots.into()),
        };
        let mut store = Store::new(Layout::dense(ROW, training), range);
        let reason = "its rows do not fit the model, or are not finite";
        ensure!(store.fits(&rows), refused("state", clock, reason));
        store.insert(&rows);
        Ok(Self { rule, store, length, clock, made: None })
    }
}

impl ParameterBackend for InProcessBackend {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError> {
        let mut weights = Vec::with_capacity(self.length.next_multiple_of(ROW));
        self.store.read(self.store.range(), &Keys::All, &mut weights);
        into.fill(weights.get(..self.length).unwrap_or_default())
    }

    fn push_part(
        &mut self,
        _part: usize,
        gradients: &ParameterSet,
        _factors: FactoredGradients,
        _from: usize,
    ) -> Result<(), BackendError> {
        let gradients = gradients.values.as_slice();
        check_length("the gradients", self.length, gradients.len())?;
        let learning_rate = self.rule.rate(self.clock);
        let (gradient_norm, scale) = self.rule.scale(gradients, 1);
        let values = padded(gradients.iter().map(|gradient| gradient * scale as f32));
        let updated = self.store.update(self.store.range(), &Keys::All, &values.into());
        updated.map_err(|reason| refused("gradient", self.clock + 1, reason))?;
        self.clock += 1;
        self.made = Some(Tick { learning_rate, gradient_norm });
        Ok(())
    }

    fn settle(&mut self) -> Result<Option<Tick>, BackendError> {
        Ok(self.made.take())
    }

    fn steps_done(&self) -> u64 {
        self.clock
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let rows = self.store.extract(self.store.range(), usize::MAX);
        let (weights, slots) = (rows.values.to_f32(), rows.state.to_f32());
        let part = |values: &[f32]| values.get(..self.length).unwrap_or_default().to_vec();
        Ok(BackendState {
            clock: self.clock,
            weights: part(&weights),
            slots: slots.chunks(weights.len().max(1)).map(part).collect(),
        })
    }

    fn restore(&mut self, state: &BackendState, _buffers: &[f32]) -> Result<(), BackendError> {
        state.check(&self.rule, self.length)?;
        *self = Self::from_state(self.rule, state)?;
        Ok(())
    }
}

fn refused(what: &'static str, step: u64, reason: impl ToString) -> BackendError {
    BackendError::Refused { what, step, reason: reason.to_string() }
}

fn padded(values: impl ExactSizeIterator<Item = f32>) -> Vec<f32> {
    let length = values.len().next_multiple_of(ROW);
    let mut all: Vec<f32> = Vec::with_capacity(length);
    all.extend(values);
    all.resize(length, 0.0);
    all
}
