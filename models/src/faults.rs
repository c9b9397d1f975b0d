//! Seeded faults for experiments, acted out: see [`parapet_config::faults`] for what can happen.
//!
//! [`FaultyEngine`] wraps a model's engine. It sleeps on the batcher's thread, so that an emulated
//! service time occupies the model as a real one would: batches run one after the other, and the
//! queue fills up behind.

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

pub struct FaultyEngine {
    inner: Box<dyn InferenceEngine>,
    started: Instant,
    /// Of the experiment, when this engine was made.
    age: Duration,
    faults: Mutex<(FaultPlan, Freezes)>,
}

impl FaultyEngine {
    pub fn new(inner: Box<dyn InferenceEngine>, injection: &Injection, model: &str) -> Self {
        let (profile, instance) = (&injection.profile, injection.instance);
        let plan = FaultPlan::new(profile, instance, model);
        let faults = Mutex::new((plan, Freezes::new(profile, instance)));
        let age = injection.epoch_unix_ms.map_or(Duration::ZERO, |epoch| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.unwrap_or_default();
            now.saturating_sub(Duration::from_millis(epoch))
        });
        Self { inner, started: Instant::now(), age, faults }
    }

    fn elapsed(&self) -> Duration {
        self.age + self.started.elapsed()
    }
}

impl InferenceEngine for FaultyEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let Fault { delay, fails } = self.faults.lock().0.next(self.elapsed());
        sleep(delay);
        let outputs = match fails {
            true => Err(EngineError::Injected),
            false => self.inner.infer(inputs),
        };
        // A freeze that began meanwhile holds the answer back.
        let frozen = self.faults.lock().1.remaining(self.elapsed());
        sleep(frozen);
        outputs
    }
}
