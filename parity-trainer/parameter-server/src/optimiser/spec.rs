//! Optimisers of a training, by name.

use serde::{Deserialize, Serialize};

use crate::{Adam, Momentum, UpdateRule};

/// Optimiser and its constants; the learning rate comes with each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimiserSpec {
    /// Kingma and Ba 2015; weight decay is added to the gradient.
    Adam {
        /// Factor of the weight decay.
        weight_decay: f64,
    },
    /// Loshchilov and Hutter 2019; weight decay shrinks the weights themselves.
    AdamW {
        /// Factor of the weight decay.
        weight_decay: f64,
    },
    /// Gradient descent with (heavy-ball) momentum; weight decay is added to the gradient.
    Sgd {
        /// Part of the last update that goes on.
        momentum: f64,
        /// Factor of the weight decay.
        weight_decay: f64,
    },
}

impl OptimiserSpec {
    /// Numbers that are kept for each weight.
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
            Self::Sgd {
                momentum,
                weight_decay,
            } => with(&Momentum {
                rate,
                momentum: momentum as f32,
                nesterov: false,
                decay: weight_decay as f32,
            }),
        }
    }
}
