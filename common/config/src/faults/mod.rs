//! Parapet: what happens to an instance in an experiment, from a seed.
//!
//! A [`FaultProfile`] says what may happen. [`FaultPlan`] and [`Freezes`] are the pure sequences
//! that follow from it, a seed and the instance's number: `parapet-instance` acts them out around a
//! model's engine, the simulator in virtual time. One profile serves a whole cluster: windows that
//! several instances share (correlated slowdowns, transfers between two of them) follow from the
//! seed alone, everything else from the seed and the instance.

mod plan;
mod profile;

pub use plan::{Fault, FaultPlan, Freezes, Window};
pub use profile::{FaultProfile, Freezing, ServiceTime, Slowdown, Span, Straggling, Transfers};
