//! Rule of an array, as it is written down.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AdaGrad, Adam, Add, Ftrl, Momentum, Sgd, UpdateRule};
use crate::optimiser::TrainingRule;

/// Effect of a push on the rows it names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RuleSpec {
    /// Addition.
    Add,
    /// Gradient descent.
    Sgd(Sgd),
    /// Gradient descent with momentum.
    Momentum(Momentum),
    /// Adam or AdamW.
    Adam(Adam),
    /// AdaGrad.
    AdaGrad(AdaGrad),
    /// FTRL-proximal.
    Ftrl(Ftrl),
    /// The steps of a training.
    Training(TrainingRule),
}

impl RuleSpec {
    /// Returns the rule itself.
    pub fn rule(self) -> Arc<dyn UpdateRule> {
        match self {
            Self::Add => Arc::new(Add),
            Self::Sgd(rule) => Arc::new(rule),
            Self::Momentum(rule) => Arc::new(rule),
            Self::Adam(rule) => Arc::new(rule),
            Self::AdaGrad(rule) => Arc::new(rule),
            Self::Ftrl(rule) => Arc::new(rule),
            Self::Training(rule) => Arc::new(rule),
        }
    }
}
