//! Experiments, for a real run and a simulated one: strategies, their instances, and those
//! instances' events. Pure, but for [`Experiment::read`].
//!
//! Every strategy has as many instances in all: those that one without redundancy would have, and
//! the redundant ones, which [`Arm::resolve`] gives to whatever the strategy needs.

mod arm;
mod check;
mod file;
#[cfg(test)]
mod tests;

pub use arm::{Arm, EQUAL_RESOURCES, ResolvedArm, Role};
pub use file::{Event, Experiment, Instances, What, usual_baseline};
