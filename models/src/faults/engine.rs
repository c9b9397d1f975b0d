//! An engine that acts out a fault profile.

use std::thread::sleep;
use std::time::Instant;

use parapet_open_inference::Tensor;
use parking_lot::Mutex;

use super::{Fault, FaultPlan, FaultProfile, Freezes};
use crate::engine::{EngineError, InferenceEngine};

/// Wraps an engine; see the module.
pub struct FaultyEngine {
    inner: Box<dyn InferenceEngine>,
    started: Instant,
    faults: Mutex<(FaultPlan, Freezes)>,
}

impl FaultyEngine {
    /// Adds the faults of `profile` to `inner`.
    pub fn new(inner: Box<dyn InferenceEngine>, profile: &FaultProfile) -> Self {
        let faults = Mutex::new((FaultPlan::new(profile), Freezes::new(profile)));
        Self { inner, started: Instant::now(), faults }
    }
}

impl InferenceEngine for FaultyEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let Fault { delay, fails } =
            self.faults.lock().0.next().unwrap_or(Fault { delay: Default::default(), fails: false });
        sleep(delay);
        let outputs = if fails { Err(EngineError::Injected) } else { self.inner.infer(inputs) };
        // A freeze that began meanwhile holds the answer back.
        let frozen = self.faults.lock().1.remaining(self.started.elapsed());
        sleep(frozen);
        outputs
    }
}
