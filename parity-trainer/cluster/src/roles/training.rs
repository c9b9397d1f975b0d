//! Trainings on the cluster: one flat array of parameters, and the work of each step cut into
//! executors.
//!
//! After Litz (Qiao et al., "Litz: Elastic Framework for High-Performance Distributed Machine
//! Learning", ATC 2018), the work is cut into more executors than there are processes. An executor
//! is a worker to the servers, with a clock of its own, so that nothing about the arithmetic
//! depends on where it runs: the gradients of a step are added up at the server in the executors'
//! order, whichever processes they come from. Its state is a part of the batch that follows from
//! the step's number, so that it moves by being named for another process; what was pushed twice
//! counts once.
//!
//! Steps are bulk synchronous unless the job's consistency model says otherwise. The process that
//! leads the training is the first of the hosts, so it always has an executor, and no step ends
//! without it.

mod changes;
mod executors;
mod job;
mod session;
mod stale;
mod start;
mod state;

pub use changes::MembershipChange;
pub use job::{Job, hosts_of};
pub use session::{Settled, Training};
pub use start::{NewTraining, next_job};

/// Numbers in a row of the array; the last row is filled up with zeroes.
pub const ROW: usize = 256;
