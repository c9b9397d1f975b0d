//! Arguments of one run of `cargo xtask bench staleness`: real servers and workers over loopback,
//! of which one is slowed.

use std::time::Duration;

use parapet_parameter_server::Consistency;

use super::{Experiment, Injection, Slowdown};
use crate::data::Generated;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or eventual
    #[arg(long)]
    consistency: Consistency,
    /// Slow worker: never, always (the first worker) or turns:MILLISECONDS (one at a
    /// time, drawn anew)
    #[arg(long)]
    slowdown: Slowdown,
    /// Factor by which a slow worker's computation takes longer
    #[arg(long, default_value_t = 4.0)]
    factor: f64,
    /// Workers
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Servers
    #[arg(long, default_value_t = 2)]
    servers: u64,
    /// Milliseconds that a minibatch takes without slowdown
    #[arg(long, default_value_t = 8)]
    compute: u64,
    /// The loss to reach is that of BSP after so many clocks
    #[arg(long, default_value_t = 100)]
    clocks: usize,
    /// Seconds after which a run is given up
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Seed of rows and draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    pub(crate) fn experiment(&self) -> Experiment {
        Experiment {
            consistency: self.consistency,
            injection: Injection {
                slowdown: self.slowdown,
                workers: self.workers,
                factor: self.factor,
                seed: self.seed,
            },
            servers: self.servers,
            compute: Duration::from_millis(self.compute),
            clocks: self.clocks,
            patience: Duration::from_secs(self.patience),
            batch: 500,
            rate: 0.2,
            data: Generated {
                features: 2_000,
                rows: 40_000,
                held_out: 4_000,
                draws: 50,
                seed: self.seed,
            },
        }
    }
}
