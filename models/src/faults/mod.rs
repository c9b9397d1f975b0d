//! Seeded faults for experiments: service time, straggling, freezes, errors.
//!
//! A [`FaultProfile`] says what may happen. [`FaultPlan`] and [`Freezes`] are the pure sequences that follow from it and
//! a seed: the same seed gives the same faults. [`FaultyEngine`] acts them out around a model's engine. It sleeps on the
//! batcher's thread, so that an emulated service time occupies the model as a real one would: batches run one after the
//! other, and the queue fills up behind.

mod engine;
mod plan;
mod profile;

pub use engine::FaultyEngine;
pub use plan::{Fault, FaultPlan, Freeze, Freezes};
pub use profile::{FaultProfile, Freezing, ProfileError, ServiceTime, Straggling};
