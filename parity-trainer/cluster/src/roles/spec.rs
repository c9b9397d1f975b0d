//! Description of an array, written down.

use std::str::FromStr;
use std::sync::Arc;

use parapet_parameter_server::optimiser::TrainingRule;
use parapet_parameter_server::{
    AdaGrad, Adam, Add, ArrayConfig, ArrayId, ClientArray, Consistency, ConsistencyPolicy as _,
    Decay, Ftrl, Layout, Momentum, Sgd, UpdateRule,
};
use serde::{Deserialize, Serialize};

use crate::roles::{ClusterError, FilterSpec};

/// An array, as its servers and workers have to know it: the description in its registry entry, as
/// TOML, whose floats read back to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Numbers in a row.
    pub width: usize,
    /// True if rows are there only once they have been updated.
    #[serde(default)]
    pub sparse: bool,
    pub rule: RuleSpec,
    pub consistency: ConsistencySpec,
    #[serde(default, skip_serializing_if = "FilterSpec::is_none")]
    pub filters: FilterSpec,
}

/// Effect of a push on the rows it names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RuleSpec {
    Add,
    Sgd {
        rate: f32,
        #[serde(default)]
        decay: f32,
    },
    /// Gradient descent with momentum.
    Momentum {
        rate: f32,
        /// Part of the last update that goes on.
        momentum: f32,
        #[serde(default)]
        nesterov: bool,
        #[serde(default)]
        decay: f32,
    },
    /// Adam (Kingma and Ba 2015), or with decoupled weight decay AdamW (Loshchilov and Hutter
    /// 2019).
    Adam {
        rate: f32,
        /// Decay of the first moment.
        beta1: f32,
        /// Decay of the second moment.
        beta2: f32,
        /// Term that keeps the divisor off zero.
        epsilon: f32,
        #[serde(default)]
        decay: f32,
        /// True if weight decay shrinks the weights themselves.
        #[serde(default)]
        decoupled: bool,
    },
    /// AdaGrad (Duchi et al. 2011).
    AdaGrad {
        rate: f32,
        /// Term that keeps the divisor off zero.
        epsilon: f32,
    },
    /// FTRL-proximal (McMahan et al. 2013).
    Ftrl {
        alpha: f32,
        /// Damping of the first steps.
        beta: f32,
        l1: f32,
        l2: f32,
    },
    /// The steps of a training.
    Training(TrainingRule),
}

/// Consistency model, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ConsistencySpec {
    /// [`Consistency::Bsp`].
    #[default]
    Bsp,
    /// [`Consistency::BoundedDelay`].
    BoundedDelay(u64),
    /// [`Consistency::Ssp`].
    Ssp(u64),
    /// [`Consistency::EagerSsp`].
    EagerSsp(u64),
    /// [`Consistency::Eventual`].
    Eventual,
}

impl From<ConsistencySpec> for Consistency {
    fn from(spec: ConsistencySpec) -> Self {
        match spec {
            ConsistencySpec::Bsp => Self::Bsp,
            ConsistencySpec::BoundedDelay(tau) => Self::BoundedDelay(tau),
            ConsistencySpec::Ssp(slack) => Self::Ssp(slack),
            ConsistencySpec::EagerSsp(slack) => Self::EagerSsp(slack),
            ConsistencySpec::Eventual => Self::Eventual,
        }
    }
}

impl From<Consistency> for ConsistencySpec {
    fn from(model: Consistency) -> Self {
        match model {
            Consistency::Bsp => Self::Bsp,
            Consistency::BoundedDelay(tau) => Self::BoundedDelay(tau),
            Consistency::Ssp(slack) => Self::Ssp(slack),
            Consistency::EagerSsp(slack) => Self::EagerSsp(slack),
            Consistency::Eventual => Self::Eventual,
        }
    }
}

impl FromStr for ConsistencySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Consistency>().map(Self::from)
    }
}

impl TryFrom<String> for ConsistencySpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ConsistencySpec> for String {
    fn from(spec: ConsistencySpec) -> Self {
        Consistency::from(spec).to_string()
    }
}

impl ConsistencySpec {
    /// Returns true if each clock's pushes are added up and applied at once.
    pub fn adds_up_clocks(self) -> bool {
        Consistency::from(self).adds_up_clocks()
    }
}

impl RuleSpec {
    fn rule(self) -> Arc<dyn UpdateRule> {
        match self {
            Self::Add => Arc::new(Add),
            Self::Sgd { rate, decay } => Arc::new(Sgd { rate, decay }),
            Self::Momentum {
                rate,
                momentum,
                nesterov,
                decay,
            } => Arc::new(Momentum {
                rate,
                momentum,
                nesterov,
                decay,
            }),
            Self::Adam {
                rate,
                beta1,
                beta2,
                epsilon,
                decay,
                decoupled,
            } => {
                let decay = if decoupled {
                    Decay::Decoupled(decay)
                } else {
                    Decay::Penalty(decay)
                };
                Arc::new(Adam {
                    rate,
                    beta1,
                    beta2,
                    epsilon,
                    decay,
                })
            }
            Self::AdaGrad { rate, epsilon } => Arc::new(AdaGrad { rate, epsilon }),
            Self::Ftrl {
                alpha,
                beta,
                l1,
                l2,
            } => Arc::new(Ftrl {
                alpha,
                beta,
                l1,
                l2,
            }),
            Self::Training(rule) => Arc::new(rule),
        }
    }
}

impl ArraySpec {
    /// The description of `array` that this reads.
    ///
    /// # Errors
    /// If it is not understood.
    pub fn parse(array: ArrayId, description: &str) -> Result<Self, ClusterError> {
        toml::from_str(description)
            .map_err(|error| Self::unreadable(array, description, error.message()))
    }

    /// Returns the text that is kept in the registry.
    ///
    /// # Errors
    /// If it does not read back as it is: a number is none.
    pub fn describe(&self, array: ArrayId) -> Result<String, ClusterError> {
        let text = toml::to_string(self)
            .map_err(|error| Self::unreadable(array, "", &error.to_string()))?;
        match Self::parse(array, &text)? == *self {
            true => Ok(text),
            false => Err(Self::unreadable(array, &text, "a number is not finite")),
        }
    }

    /// One line, whatever the description.
    fn unreadable(array: ArrayId, description: &str, cause: &str) -> ClusterError {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        ClusterError::Array {
            array,
            description: line(description),
            cause: line(cause),
        }
    }

    /// For a server.
    pub fn server(&self) -> ArrayConfig {
        let layout = Layout {
            width: self.width.max(1),
            sparse: self.sparse,
            rule: self.rule.rule(),
            initial: None,
        };
        ArrayConfig {
            layout,
            policy: Arc::new(Consistency::from(self.consistency)),
        }
    }

    /// For a worker.
    pub fn client(&self) -> ClientArray {
        ClientArray {
            width: self.width.max(1),
            consistency: self.consistency.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_description_reads_back_and_a_bad_one_says_what_is_wrong() {
        let rule = RuleSpec::Momentum {
            rate: 0.1,
            momentum: 0.9,
            nesterov: true,
            decay: 0.0,
        };
        let consistency = ConsistencySpec::Ssp(2);
        let filters = FilterSpec {
            lz4: true,
            ..FilterSpec::default()
        };
        let spec = ArraySpec {
            width: 3,
            sparse: true,
            rule,
            consistency,
            filters,
        };
        let text = spec.describe(ArrayId(4)).unwrap();
        assert_eq!(ArraySpec::parse(ArrayId(4), &text).unwrap(), spec);
        let error = ArraySpec::parse(ArrayId(4), "width = 3\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("array 4 is described as") && !error.contains('\n'),
            "{error}"
        );
        let rule = RuleSpec::Sgd {
            rate: f32::NAN,
            decay: 0.0,
        };
        assert!(ArraySpec { rule, ..spec }.describe(ArrayId(4)).is_err());
    }
}
