//! Experiments, for a real run and a simulated one: strategies, their instances, and those
//! instances' events. Pure, but for [`Experiment::read`].
//!
//! Every strategy has as many instances in all: `instances` that one without redundancy would have,
//! and `redundant` more, which [`Roles`] gives to whatever the strategy needs.

mod check;
mod faults;
mod file;
mod roles;
mod strategy;

pub use faults::{parse_freeze, parse_service_time, parse_slowdown, parse_span, parse_straggle};
pub use file::{Event, Experiment, FileError, Instances, Strategy, What, usual_baseline};
pub use roles::{Role, Roles};
pub use strategy::{Arm, EQUAL_RESOURCES, ResolvedArm};

use parapet_frontend_core::StrategyConfig;

/// An experiment that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// No strategy of this name.
    #[error(
        "unknown strategy {0:?}; choose among {EQUAL_RESOURCES}, {names}",
        names = StrategyConfig::NAMES.join(", ")
    )]
    UnknownStrategy(String),
    /// A strategy's parameter that it does not have, or that is no number.
    #[error(
        "strategy {spec:?}: {part:?} is no parameter; write it as, say, coded:k=3:r=1:flush_after_ms=6"
    )]
    Parameter {
        /// The strategy as it was written.
        spec: String,
        /// The part that is wrong.
        part: String,
    },
    /// Settings that the strategy does not have, or that cannot be.
    #[error("strategy {arm:?}: {problem} (docs/strategies.md)")]
    Setting { arm: String, problem: String },
    /// A number that cannot be.
    #[error("{what} {value}; {fix}")]
    Number {
        what: &'static str,
        value: String,
        fix: &'static str,
    },
    /// Groups that no pool can serve.
    #[error(
        "k = {k} is more than the {instances} instances of the deployed model; lower k or add \
            instances"
    )]
    TooFewForGroup {
        /// Queries in a group.
        k: usize,
        /// Instances of the deployed model.
        instances: usize,
    },
    /// A strategy with pools of its own, and too few instances for them.
    #[error(
        "strategy {strategy} needs at least {needed} redundant instances and has {redundant}; add \
            some"
    )]
    TooFewRedundant {
        strategy: &'static str,
        /// Instances that it needs at least.
        needed: usize,
        /// Instances that there are.
        redundant: usize,
    },
    /// A description of a fault or a distribution that cannot be read.
    #[error("{what} {text:?}: {problem}; write it as {form}")]
    Form {
        what: &'static str,
        text: String,
        problem: String,
        form: &'static str,
    },
}
