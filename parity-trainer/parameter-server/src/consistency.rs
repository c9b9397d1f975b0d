//! Consistency models: which pulls wait, and which pushes are added up before they are applied.
//!
//! A worker in iteration c has pushed the clocks before c. What it may miss of the others, when it pulls:
//!
//! | model | a pull at c waits for | source |
//! |---|---|---|
//! | BSP | all updates below c; each clock is applied at once, when all workers have pushed it | Valiant 1990 |
//! | bounded delay tau | all updates below c - tau | Li et al., OSDI 2014, section 3.4 |
//! | SSP s | all updates below c - s, and the worker's own below c | Ho et al., NIPS 2013 |
//! | eager SSP s | as SSP; fresh rows are sent to readers when a clock is finished | Cui et al., ATC 2014 |
//! | eventual | nothing | OSDI 2014 |

use crate::{Clock, KeyRange, RangedClocks, WorkerId};

/// How far workers may be apart in what they see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// Bulk synchronous: every iteration sees exactly those before it.
    Bsp,
    /// At most this many clocks behind.
    BoundedDelay(u64),
    /// Stale synchronous: at most this many clocks behind, and never behind oneself.
    Ssp(u64),
    /// SSP in which servers send rows before they are asked for.
    EagerSsp(u64),
    /// Whatever has arrived.
    Eventual,
}

/// What a server asks of a consistency model. A trait, so that a test can plant a wrong one.
pub trait ConsistencyPolicy: std::fmt::Debug + Send + Sync {
    /// Whether a pull of `range` by `worker` in iteration `clock` can be answered from values that contain `applied`.
    fn may_read(&self, applied: &RangedClocks, worker: WorkerId, range: KeyRange, clock: Clock) -> bool;

    /// Whether the pushes of one clock are added up and applied together, once every worker has sent its own. Saves
    /// replication, too: one operation goes down the chain instead of one for each worker (OSDI 2014, section 4.3).
    fn adds_up_clocks(&self) -> bool;

    /// Whether rows are sent to their readers when a clock is finished.
    fn sends_fresh_rows(&self) -> bool;
}

impl Consistency {
    /// The clock whose updates, of all workers, a pull at `clock` must contain.
    pub const fn needed(self, clock: Clock) -> Clock {
        match self {
            Self::Bsp => clock.minus(1),
            Self::BoundedDelay(slack) | Self::Ssp(slack) | Self::EagerSsp(slack) => {
                clock.minus(slack.saturating_add(1))
            }
            Self::Eventual => Clock(0),
        }
    }
}

impl ConsistencyPolicy for Consistency {
    fn may_read(&self, applied: &RangedClocks, worker: WorkerId, range: KeyRange, clock: Clock) -> bool {
        let sees_itself = match self {
            Self::Ssp(_) | Self::EagerSsp(_) => {
                applied.lowest_of(worker, range).is_none_or(|own| own >= clock.minus(1))
            }
            Self::Bsp | Self::BoundedDelay(_) | Self::Eventual => true,
        };
        // Eventual asks for clock 0, which a worker that joins has always finished.
        sees_itself && applied.finished(range).is_none_or(|finished| finished >= self.needed(clock))
    }

    fn adds_up_clocks(&self) -> bool {
        matches!(self, Self::Bsp)
    }

    fn sends_fresh_rows(&self) -> bool {
        matches!(self, Self::EagerSsp(_))
    }
}
