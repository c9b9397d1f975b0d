//! Benchmarks of the whole: timed by hand, never in a test.

mod client;
pub(crate) mod cluster_training;
pub(crate) mod fidelity;
mod load;
pub(crate) mod loadgen;
mod nginx;
pub(crate) mod overload;
pub(crate) mod parameter_server;
pub(crate) mod proxy;
mod remote;
pub(crate) mod section;
mod servers;
pub(crate) mod serving;
mod spread;
pub(crate) mod staleness;
pub(crate) mod tail;
pub(crate) mod training;
mod wrk;
