//! The sans-IO core of the frontend: which instance serves which query, when a coding group is
//! encoded, when a reconstruction may answer.
//!
//! [`Engine`] takes events (a query arrived, an upstream request finished, a timer is due) and
//! returns [`Action`]s (send, encode, reconstruct, answer). It reads no clock, socket or random
//! number: time is handed in, so that the frontend, the property tests and a simulator drive the
//! same code. Inputs `I` and outputs `O` are opaque.
//!
//! ```text
//!            events                              actions
//!   driver ---------> Engine { Core, Strategy } ---------> driver
//!                       |         |
//!                       |         `- Hedge, Coded, ..: which redundant work, which answer
//!                       `- queries (exactly one answer), pools (FIFO, free slots), retries, timers
//! ```
//!
//! # Invariants
//! The numbers stand in `ALGORITHM.md`, in the tests and in metrics alike.
//!
//! - **CG-1** every accepted query gets exactly one terminal answer, by its deadline.
//! - **CG-2** an exact prediction in hand is never replaced by a reconstruction, or any other
//!   approximation.
//! - **CG-3** coding never delays a query: its own dispatch comes first.
//! - **CG-4** an approximation is held back until the query is late (at once while no instance is
//!   up), or its own prediction is lost for good.
//! - **CG-5** a group that does not fill in time is completed with recently answered queries,
//!   with slots with its own first one.
//! - **CG-6** groups mix only queries of one [`GroupKey`]; a bad output spoils at most its group.
//! - **CG-7** redundant work is budgeted and shed first; without parity instances serving goes on
//!   plainly.
//! - **CG-8** a client that goes away cancels its work, except a prediction its group still needs.

mod action;
mod budget;
mod concurrency;
mod core;
mod engine;
mod group_view;
mod hold_back;
mod ids;
mod instance_view;
mod latency;
mod outliers;
mod pool;
mod query;
mod queue_limit;
mod stats;
mod strategy;
mod switches;
mod time;
mod timers;

pub use action::{Action, Answer, AttemptResult, Comparison, Failure, FailureKind};
pub use budget::BudgetView;
pub(crate) use budget::TokenBucket;
pub use core::{Core, CoreConfig, PoolConfig};
pub use engine::{Arrival, Engine, Rejected};
pub use group_view::{GroupView, MemberView};
pub(crate) use hold_back::HoldBack;
pub use hold_back::HoldBackPolicy;
pub use ids::{
    ClassId, DomainId, GroupId, GroupKey, InstanceId, JobId, PoolId, QueryId, Row, Slot,
};
pub use instance_view::{InstanceState, InstanceView};
pub use latency::{LatencyView, Percentiles};
pub use outliers::OutlierConfig;
pub use pool::Pool;
pub(crate) use pool::Submitted;
pub(crate) use queue_limit::QueueLimit;
pub use queue_limit::QueueLimitConfig;
pub use stats::{RedundancyOutcomes, Stats};
pub use strategy::approximate_backup::ApproximateBackupConfig;
pub use strategy::by_class::ByClass;
pub use strategy::coded::{CodedConfig, SendParity};
pub use strategy::config::StrategyConfig;
pub use strategy::hedge::{HedgeBudget, HedgeConfig};
pub use strategy::replicate::ReplicateConfig;
pub use strategy::settings::{DeployedInstances, SettingError, millis};
pub use strategy::{Strategy, Verdict};
pub use switches::{HoldBackOverride, Switches};
pub use time::Time;
