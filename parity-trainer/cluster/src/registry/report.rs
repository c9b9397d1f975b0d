//! Reports of members to the leader.

use std::fmt;

use parapet_parameter_server::{HandOver, NodeId, Peer, ShardRef, WorkerId};

/// Member of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// Member that holds parameters.
    Server(NodeId),
    /// Reads and updates them.
    Worker(WorkerId),
    /// Neither: it can only lead.
    Coordinator(u64),
}

impl Member {
    /// As the other servers and workers know it.
    pub const fn peer(self) -> Option<Peer> {
        match self {
            Self::Server(node) => Some(Peer::Server(node)),
            Self::Worker(worker) => Some(Peer::Worker(worker)),
            Self::Coordinator(_) => None,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(node) => node.fmt(f),
            Self::Worker(worker) => worker.fmt(f),
            Self::Coordinator(number) => write!(f, "coordinator {number}"),
        }
    }
}

/// Something that a member holds to be so, until it retracts it or is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Report {
    /// The server is dead: its connection was reset, or its heartbeats are missing.
    Suspect(NodeId),
    /// The hand-over is complete: append the server to the chain
    /// ([`parapet_parameter_server::Action::Propose`]).
    Propose(HandOver),
    /// This server was named for a shard whose state never came here
    /// ([`parapet_parameter_server::Action::Lost`]).
    Lost(ShardRef),
}

/// Change of what a member reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportChange {
    Made(Report),
    /// It is no longer so.
    Retracted(Report),
}
