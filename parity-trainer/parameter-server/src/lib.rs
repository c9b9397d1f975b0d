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
//! The numbers stand in `ARCHITECTURE.md`, in the tests and in metrics alike.
//!
//! - **PS-1** an acknowledged push is in the state of every replica that any later chain is made
//!   of.
//! - **PS-2** a push is applied exactly once, however often it is sent and whichever server it
//!   reaches.
//! - **PS-3** a head that was replaced commits nothing: its successor refuses the old epoch.
//! - **PS-4** a pull at clock c under slack s contains every update of a clock below c - s of every
//!   live worker that a range's head knew of when it answered.
//! - **PS-5** replicas that have applied the same operations hold the same bits.
//! - **PS-6** at most one server accepts pushes for a key in each epoch.
//! - **PS-7** a value that is not finite never enters the store: an update that would make one is
//!   refused as a whole, for all workers whose pushes it adds up; their clocks stay as they were.
//! - **PS-8** every log, queue and window has a bound; a full one refuses with a reason that says
//!   to come again.

mod client;
mod clocks;
mod consistency;
mod coordinator;
mod filter;
mod ids;
mod message;
pub mod optimiser;
mod placement;
mod pool;
mod push_aggregator;
mod range;
mod range_set;
mod refusal;
mod routing;
mod rule;
mod server;
mod store;
mod values;

pub use client::{
    Client, ClientAction, ClientArray, ClientConfig, ClientEvent, Handle, SubmitError, Task,
    TaskOutcome, Work,
};
pub use clocks::RangedClocks;
pub use consistency::{Consistency, ConsistencyPolicy};
pub use coordinator::{Change, ClusterState, Coordinator, CoordinatorConfig, HandOver};
pub use filter::{
    ArrayFilters, Bytes, Digest, Filter, FilterError, Kkt, LeftOut, Link, LinkLimits, Packed,
    PackedKeys, PackedValues, Precision, PushFilter, Traffic, UnpackError,
};
pub use ids::{ArrayId, Clock, Epoch, Key, NodeId, Peer, RequestId, Seq, TransferId, WorkerId};
pub use message::{
    Message, Operation, Pull, PullReply, Push, PushAck, Refused, Replicate, ReplicateAck, Request,
    Rows, ShardRef, Snapshot, SnapshotAck, SnapshotEnd, SnapshotPhase, WorkerClock,
};
pub use optimiser::RuleSpec;
pub use placement::{ChainChange, Placement, Ring, Step, next_step};
pub use pool::Pool;
pub use push_aggregator::PushAggregator;
pub use range::KeyRange;
pub use refusal::Refusal;
pub use routing::{Route, Routing, RoutingError};
pub use rule::{Adam, Add, Ftrl, Momentum, Sgd, UpdateRule};
pub use server::{Action, ArrayConfig, Event, Server, ServerConfig, ShardView};
pub use store::{Layout, NotFinite, Store};
pub use values::{Keys, MODERATE, Shared, Values, ValuesError, are_moderate};
