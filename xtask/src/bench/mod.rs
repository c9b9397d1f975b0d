//! Benchmarks of the whole: timed by hand, never in a test.

pub(crate) mod cluster_training;
pub(crate) mod fidelity;
pub(crate) mod loadgen;
pub(crate) mod overload;
pub(crate) mod parameter_server;
pub(crate) mod section;
pub(crate) mod serving;
mod spread;
pub(crate) mod staleness;
pub(crate) mod tail;
pub(crate) mod training;
