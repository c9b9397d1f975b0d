//! A cluster of thousands of instances in virtual time.
//!
//! A discrete-event simulation around the frontend's own [`Engine`](parapet_frontend_core::Engine):
//! the same coding groups, strategies, queues and timers as in the frontend, with instances that
//! act out the same fault profiles as `parapet-instance` does. Only what lies between them is a
//! model: delays of the network ([`Network`]) and of coding, and an instance's batches. Predictions
//! have no content, so there is no accuracy, and a reconstruction never fails. Pure, and the same
//! for the same [`Simulation`]: no clock, no IO, one seeded stream of random numbers for each
//! purpose.

mod cluster;
mod instance;
mod report;
mod simulation;
mod simulator;
mod surroundings;

pub use report::{Answered, MAX_RECORDS, PoolUse, SCHEMA, Simulated, SimulationReport, comparison};
pub use simulation::{MAX_INSTANCES, MAX_QUERIES, Simulation, simulations};
pub use simulator::Simulator;
pub use surroundings::{Delay, Network, Surroundings};

type Jobs = rustc_hash::FxHashSet<parapet_frontend_core::JobId>;
