//! The parameter server as processes: the data plane ([`node`](crate::node)) and membership
//! ([`registry`](crate::registry)) of each role.
//!
//! - [`ServerRole`]: joins, serves, takes part in the election of a leader, and leaves without
//!   loss.
//! - [`coordinate`]: takes part in the election only.
//! - [`WorkerRole`]: a worker whose clock counts, with the handle that tasks are submitted by.
//! - [`training`]: a training whose executors move between the worker processes that are there.

pub mod command;
pub mod control;
mod error;
mod metrics;
mod server;
pub mod training;
mod worker;

pub use error::{ClusterError, Result};
pub use server::{ServerRole, ServerSettings, coordinate};
pub use worker::{WorkerRole, await_array, define};
