//! The sans-IO core of a parameter server: arrays cut into key ranges, each range held by a chain
//! of servers, read and updated by workers under a consistency model (Li et al., "Scaling
//! Distributed Machine Learning with the Parameter Server", OSDI 2014).
//!
//! Nothing here reads a clock, a socket or a random number: events go in, actions come out, so that
//! a server, an embedded run and a simulation drive the same code.
//!
//! # Clocks
//! A worker computes iteration 1, 2, .. and pushes, for each range and iteration, once: the push
//! carries the iteration as its [`Clock`], and ends that clock on the whole range, even if it names
//! no key. The clocks of one worker on one key are therefore consecutive, which is what makes
//! resends harmless (PS-2).
//!
//! # Invariants
//! PS-1 to PS-8 are listed in `ARCHITECTURE.md`; tests and metrics use the same numbers.

#![allow(missing_docs, reason = "names and types say the rest")]
#![allow(
    clippy::large_enum_variant,
    reason = "events and actions are passed on at once: a box would be an allocation for each"
)]

mod client;
mod clocks;
mod consistency;
mod coordinator;
mod filter;
mod ids;
mod load;
mod message;
mod mirror;
pub mod optimiser;
mod placement;
mod pool;
mod push_aggregator;
mod range;
mod routing;
mod rule;
mod server;
mod store;
mod values;

pub use client::{
    Client, ClientAction, ClientArray, ClientConfig, ClientEvent, Handle, Pulled, SubmitError,
    Task, TaskOutcome, Work,
};
pub use clocks::RangedClocks;
pub use consistency::Consistency;
pub use coordinator::{Change, ClusterState, Coordinator, CoordinatorConfig, HandOver};
pub use filter::{
    ArrayFilters, Bytes, Digest, Filter, FilterError, Kkt, LeftOut, Link, LinkLimits, Packed,
    PackedKeys, PackedValues, Precision, PushFilter, Traffic, UnpackError,
};
pub use ids::{ArrayId, Clock, Epoch, Key, NodeId, Peer, RequestId, Seq, TransferId, WorkerId};
pub use load::{
    LoadPlan, Plan, RowTimes, ServedBy, Servers, ServiceModel, ServiceTime, Shards, StepTimes,
    estimates, median, medians, plan,
};
pub use message::{
    Answer, Members, Message, Operation, Pull, PullReply, Push, Refusal, Replicate, Request, Rows,
    ShardRef, Snapshot, SnapshotEnd, Update,
};
pub use mirror::Mirror;
pub use optimiser::RuleSpec;
pub use placement::{ChainChange, Placement, Ring, Step, next_step};
pub use pool::Pool;
pub use push_aggregator::PushAggregator;
pub use range::KeyRange;
pub use routing::{Route, Routing, RoutingError};
pub use rule::{Adam, Add, Ftrl, Momentum, Sgd, UpdateRule};
pub use server::{Action, ArrayConfig, Event, Server, ServerConfig, ShardView};
pub use store::{Layout, Store};
pub use values::{Factors, Keys, MODERATE, Shared, Values, ValuesError, are_moderate};
