//! The update rules of the array that is trained, with numbers of all magnitudes.

use std::sync::Arc;

use parapet_parameter_server::{Adam, Add, Ftrl, UpdateRule};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// A rule that overflows soon, and says that it does not: the store skips its check.
#[derive(Debug)]
struct Reckless(Adam);

impl UpdateRule for Reckless {
    fn slots(&self) -> usize {
        self.0.slots()
    }

    fn counts_steps(&self) -> bool {
        self.0.counts_steps()
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        self.0.apply(step, gradient, values, state);
    }

    fn keeps_moderate_finite(&self) -> bool {
        true
    }
}

const FTRL: Ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.1, l2: 0.1 };

/// The rule of a run.
pub fn rule(seed: u64, skips_check: bool) -> Arc<dyn UpdateRule> {
    let overflowing = Adam { rate: 1e38, ..Adam::default() };
    match seed % 4 {
        _ if skips_check => Arc::new(Reckless(overflowing)),
        0 => Arc::new(Add),
        1 => Arc::new(FTRL),
        2 => Arc::new(overflowing),
        _ => Arc::new(Adam::default()),
    }
}

/// A gradient: small as a rule, now and then of any magnitude.
pub fn gradient(rng: &mut ChaCha8Rng) -> f32 {
    let small: f32 = rng.random_range(-1.0..1.0);
    if rng.random_bool(0.02) {
        let exponent: f32 = rng.random_range(10.0..38.5);
        return (small.signum() * 10f32.powf(exponent)).clamp(f32::MIN, f32::MAX);
    }
    small
}
