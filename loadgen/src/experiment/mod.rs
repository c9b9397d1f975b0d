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
#[cfg(test)]
mod tests;

pub use faults::{parse_freeze, parse_service_time, parse_slowdown, parse_span, parse_straggle};
pub use file::{Event, Experiment, Instances, Strategy, What, usual_baseline};
pub use roles::{Role, Roles};
pub use strategy::{Arm, EQUAL_RESOURCES, ResolvedArm};

use parapet_frontend_core::StrategyConfig;

/// Names of the strategies that settings may have, for an error.
fn strategy_names() -> String {
    StrategyConfig::NAMES.join(", ")
}
