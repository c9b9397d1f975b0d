//! Benefit of staleness with a slow worker: the time until workers that may miss some of one
//! another's updates reach the loss that bulk-synchronous ones reach after a number of clocks (Ho
//! et al., NIPS 2013, section 5).
//!
//! Servers, workers and connections are real. What a worker computes is real, too, but small; then
//! it sleeps until the time that its computation is to take, so that the processors of one machine,
//! which all workers share, decide nothing. The model is logistic regression by plain gradient
//! descent: the servers add up scaled gradients, so that what is learned differs between
//! consistency models by staleness alone. All weights are pulled and pushed, as a network's are.

mod command;
mod injection;
mod race;

pub(crate) use command::Args;
pub(crate) use injection::{Injection, Slowdown};
pub(crate) use race::{Experiment, RaceError, race};
