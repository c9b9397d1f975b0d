//! The parameter server as processes: what joins the data plane (`parapet-parameter-server-node`)
//! to what the cluster agrees on (`parapet-parameter-server-registry`), for each role.
//!
//! - [`Bridge`]: from the registry's view to the node's, and from a node's reports to the
//!   registry's.
//! - [`ServerRole`]: joins, serves, takes part in the election of a leader, and leaves without
//!   loss.
//! - [`coordinate`]: takes part in the election only.
//! - [`WorkerRole`]: a worker whose clock counts, with the handle that tasks are submitted by.
//! - [`training`]: a training whose executors move between the worker processes that are there.
//! - [`ArraySpec`]: what an array is, as text in the registry, so that servers need not know it
//!   when they start.

mod bridge;
pub mod command;
pub mod control;
mod coordinator;
mod error;
mod filters;
mod listening;
mod metrics;
mod server;
mod spec;
pub mod training;
mod worker;

pub use bridge::Bridge;
pub use coordinator::coordinate;
pub use error::ClusterError;
pub use filters::FilterSpec;
pub use server::{ServerRole, ServerSettings};
pub use spec::ArraySpec;
pub use worker::{WorkerRole, WorkerSettings, await_array, define};
