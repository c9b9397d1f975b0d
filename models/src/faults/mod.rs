//! Seeded faults for experiments, acted out: see [`parapet_config::faults`] for what can happen.
//!
//! [`FaultyEngine`] wraps a model's engine. It sleeps on the batcher's thread, so that an emulated
//! service time occupies the model as a real one would: batches run one after the other, and the
//! queue fills up behind.

mod engine;

pub use engine::{FaultyEngine, Injection};
