//! Optimisers of a training: the servers' rules with a learning rate that changes over a run.

mod config;
mod schedule;
mod server;
mod spec;

pub use config::{OptimiserConfig, norm};
pub use schedule::Schedule;
pub use server::{ServerRule, TrainingRule};
pub use spec::OptimiserSpec;
