//! The control plane: what a server that runs is asked, over gRPC. Parameters pass here only for a
//! training's checkpoints.

mod client;
mod server;

use parapet_parameter_server::{Clock, ShardRef, WorkerId};

pub use client::{Control, StoredRows};
pub(crate) use server::ControlServer;

#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    unreachable_pub,
    reason = "generated"
)]
pub(crate) mod proto {
    tonic::include_proto!("parapet.control.v1");
}

/// Bytes of a message, at most.
const MAX_MESSAGE: usize = 256 << 20;

/// Status of a server, as it reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    pub received: u64,
    pub sent: u64,
    /// Messages for which there was no connection or no room.
    pub dropped: u64,
    pub lost: u64,
    /// The shards it holds.
    pub shards: Vec<ShardStatus>,
}

/// One server's part of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard, at the epoch the server knows.
    pub at: ShardRef,
    /// The last log entry it contains.
    pub applied: u64,
    /// The last log entry that is known to be in the whole chain.
    pub committed: u64,
    /// Bytes that its rows take.
    pub memory: u64,
    /// Clock of each worker that every row contains.
    pub clocks: Vec<(WorkerId, Clock)>,
}
