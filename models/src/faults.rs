//! Seeded faults for experiments, acted out: see [`parapet_config::faults`] for what can happen.
//!
//! [`FaultyEngine`] wraps a model's engine. It sleeps on the batcher's thread, so that an emulated
//! service time occupies the engine as a real one would: its batches run one after the other, and
//! the queue fills up behind. A model's engines share the faults: a freeze stops them all.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parapet_config::faults::{Fault, FaultPlan, FaultProfile, Freezes};
use parapet_open_inference::Tensor;
use parking_lot::Mutex;

use crate::engine::{EngineError, InferenceEngine};

#[derive(Debug, Clone)]
pub struct Injection {
    pub profile: FaultProfile,
    pub instance: u64,
    /// The experiment's start as milliseconds since 1970, for faults that instances have in common;
    /// this instance's start without one.
    pub epoch_unix_ms: Option<u64>,
}

pub struct Faults {
    started: Instant,
    /// Of the experiment, when these were made.
    age: Duration,
    state: Mutex<(FaultPlan, Freezes)>,
}

impl Faults {
    pub fn new(injection: &Injection, model: &str) -> Self {
        let (profile, instance) = (&injection.profile, injection.instance);
        let plan = FaultPlan::new(profile, instance, model);
        let state = Mutex::new((plan, Freezes::new(profile, instance)));
        let age = injection.epoch_unix_ms.map_or(Duration::ZERO, |epoch| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.saturating_sub(Duration::from_millis(epoch))
        });
        Self { started: Instant::now(), age, state }
    }

    fn elapsed(&self) -> Duration {
        self.age + self.started.elapsed()
    }
}

pub struct FaultyEngine {
    pub inner: Box<dyn InferenceEngine>,
    pub faults: Arc<Faults>,
}

impl InferenceEngine for FaultyEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let faults = &self.faults;
        let Fault { delay, fails } = faults.state.lock().0.next(faults.elapsed());
        sleep(delay);
        let outputs = if fails { Err(EngineError::Injected) } else { self.inner.infer(inputs) };
        // A freeze that began meanwhile holds the answer back.
        let frozen = faults.state.lock().1.remaining(faults.elapsed());
        sleep(frozen);
        outputs
    }
}
