//! Update rules: optimisers with libtorch's arithmetic, learning rates over a run, and both
//! as a parameter server's rule. Pure, so that every server of a cluster and a plain loop
//! give the same bits.

mod rule;
mod schedule;
mod server;
mod spec;

pub use rule::{UpdateRule, norm};
pub use schedule::Schedule;
pub use server::{ServerRule, TrainingRule};
pub use spec::OptimiserSpec;
