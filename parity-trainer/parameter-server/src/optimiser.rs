//! Optimisers of a training: the servers' rules with a learning rate that changes over a run.

#[cfg(test)]
mod tests;

use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Adam, Add, Key, Momentum, Sgd, UpdateRule};

/// Optimiser and its constants; the learning rate comes with each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimiserSpec {
    /// Kingma and Ba 2015; weight decay is added to the gradient.
    Adam { weight_decay: f64 },
    /// Loshchilov and Hutter 2019; weight decay shrinks the weights themselves.
    AdamW { weight_decay: f64 },
    /// Gradient descent with (heavy-ball) momentum, the part of the last update that goes on;
    /// weight decay is added to the gradient.
    Sgd { momentum: f64, weight_decay: f64 },
}

impl OptimiserSpec {
    /// Number of values of state for each weight.
    pub fn slots(self) -> usize {
        self.at(0.0, |rule| rule.slots())
    }

    /// Calls `with` with the rule of this optimiser at a learning rate.
    pub fn at<R>(self, rate: f64, with: impl FnOnce(&dyn UpdateRule) -> R) -> R {
        let rate = rate as f32;
        let adam = |decay: f64, decoupled| Adam {
            rate,
            decay: decay as f32,
            decoupled,
            ..Adam::default()
        };
        match self {
            Self::Adam { weight_decay } => with(&adam(weight_decay, false)),
            Self::AdamW { weight_decay } => with(&adam(weight_decay, true)),
            Self::Sgd { momentum, weight_decay } => {
                with(&Momentum { rate, momentum: momentum as f32, decay: weight_decay as f32 })
            }
        }
    }
}

/// Part of a cosine run in which the rate grows from nothing.
const WARM_UP: f64 = 0.03;

/// Schedule of the learning rate, relative to its peak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    Constant,
    /// A short linear warm-up, then half a cosine down to zero (Loshchilov and Hutter, SGDR, 2017,
    /// without restarts).
    #[default]
    Cosine,
}

impl Schedule {
    /// The rate at `step` of `steps`, counted from 0.
    pub fn rate(self, peak: f64, step: u64, steps: u64) -> f64 {
        let progress = (step as f64 + 0.5) / steps.max(1) as f64;
        match self {
            Self::Constant => peak,
            Self::Cosine if progress < WARM_UP => peak * progress / WARM_UP,
            Self::Cosine => {
                let part = (progress - WARM_UP) / (1.0 - WARM_UP);
                peak * 0.5 * (1.0 + (std::f64::consts::PI * part.min(1.0)).cos())
            }
        }
    }
}

/// As in PyTorch: keeps a vanishing gradient's scale finite.
const CLIP_EPSILON: f64 = 1e-6;

/// Optimiser of a training and its learning rate over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimiserConfig {
    pub optimiser: OptimiserSpec,
    /// Peak learning rate.
    pub learning_rate: f64,
    pub schedule: Schedule,
    pub steps: u64,
    /// Longest gradient; longer ones are scaled down to it. `None` for any.
    pub clip: Option<f64>,
}

impl OptimiserConfig {
    /// The rate of the step after `done` steps.
    pub fn rate(&self, done: u64) -> f64 {
        self.schedule.rate(self.learning_rate, done, self.steps)
    }

    /// The length of the mean of gradients whose sum this is, and the factor that makes the sum the
    /// mean, no longer than allowed.
    pub fn scale(&self, sum: &[f32], count: u32) -> (f64, f64) {
        let mean = 1.0 / f64::from(count);
        let norm = mean * norm(sum);
        let longest = self.clip.unwrap_or(f64::INFINITY);
        (norm, mean * (longest / (norm + CLIP_EPSILON)).min(1.0))
    }
}

/// A vector's length. Sums of a few thousand squares at a time lose nothing in `f32`, at its speed.
pub fn norm(values: &[f32]) -> f64 {
    let lanes = |chunk: &[f32]| {
        let mut sums = [0.0f32; 8];
        let (whole, rest) = chunk.as_chunks::<8>();
        for values in whole {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value * value;
            }
        }
        let rest: f32 = rest.iter().map(|value| value * value).sum();
        f64::from(sums.iter().sum::<f32>() + rest)
    };
    values.chunks(4096).map(lanes).sum::<f64>().sqrt()
}

/// A training whose start comes over the wire: the first push sets the weights, those after it the
/// optimiser's state, slot by slot, if it goes on from another training. All later ones are steps.
///
/// The rows from `measured_from` on hold what the network measures while it learns, such as batch
/// norm's running moments; a step replaces them by the sum of what is pushed. Within a process the
/// store is filled instead; rows begin with [`set_up`](Self::set_up) updates. Where pushes are not
/// added up, each is an update with its part of the learning rate: as many as make a step go as far
/// as the step would.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrainingRule {
    pub rule: OptimiserConfig,
    pub done: u64,
    /// The first row that is not learned, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_from: Option<Key>,
    /// Updates of a row that make a step.
    #[serde(default = "one")]
    pub updates: NonZeroU64,
}

const fn one() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl TrainingRule {
    /// Pushes before the first step.
    pub fn set_up(&self) -> u64 {
        let goes_on = self.done > 0;
        1 + if goes_on { self.slots() as u64 } else { 0 }
    }
}

impl UpdateRule for TrainingRule {
    fn slots(&self) -> usize {
        self.rule.optimiser.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let (step, set_up, each) = (u64::from(step), self.set_up(), self.updates.get());
        if step > set_up {
            let number = self.done * each + (step - set_up);
            let rate = self.rule.rate(number.saturating_sub(1) / each) / each as f64;
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let apply = |rule: &dyn UpdateRule| rule.apply(number, gradient, values, state);
            self.rule.optimiser.at(rate, apply);
        } else if step == 1 {
            values.copy_from_slice(gradient);
        } else if let Some(slot) = state.get_mut(usize::try_from(step - 2).unwrap_or(usize::MAX)) {
            slot.copy_from_slice(gradient);
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let rate = self.rule.learning_rate;
        let is_kept = |rule: &dyn UpdateRule| rule.keeps_moderate_finite();
        self.rule.optimiser.at(rate, is_kept)
    }

    fn border(&self) -> Option<Key> {
        self.measured_from
    }

    fn apply_beyond(
        &self,
        step: u32,
        pushed: &[f32],
        values: &mut [f32],
        state: &mut [&mut [f32]],
    ) {
        if u64::from(step) > self.set_up() {
            values.copy_from_slice(pushed);
        } else {
            self.apply(step, pushed, values, state);
        }
    }
}

/// Rule of an array, as it is written down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RuleSpec {
    Add,
    Sgd(Sgd),
    Training(TrainingRule),
}

impl RuleSpec {
    pub fn rule(self) -> Arc<dyn UpdateRule> {
        match self {
            Self::Add => Arc::new(Add),
            Self::Sgd(rule) => Arc::new(rule),
            Self::Training(rule) => Arc::new(rule),
        }
    }
}
