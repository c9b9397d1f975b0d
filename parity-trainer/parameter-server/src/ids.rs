//! Identifiers and counters. Each is its own type, so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The index of a row of an array.
pub type Key = u64;

macro_rules! number {
    ($($(#[$doc:meta])* $type:ident($inner:ty) $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[derive(Serialize, Deserialize)]
        pub struct $type(pub $inner);

        impl $type {
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

number! {
    /// One life of a server process: a restarted one has lost its state, so it is a new node.
    NodeId(u64) "server ";
    /// One life of a worker. Never used again: a worker that leaves and returns is a new one.
    WorkerId(u64) "worker ";
    ArrayId(u32) "array ";
    /// An iteration of a worker, from 1; 0 is before the first.
    Clock(u64) "clock ";
    /// Counts the changes of the chain that holds a range; every change raises it (van Renesse &
    /// Schneider, OSDI 2004, leave this to the master; here it also fences the old head).
    Epoch(u64) "epoch ";
    /// The place of an operation in the log of its chain, from 1.
    Seq(u64) "operation ";
    /// A pull, unique for its worker.
    RequestId(u64) "request ";
    /// One attempt to copy a range to another server, unique for its source.
    TransferId(u64) "transfer ";
}

impl Clock {
    /// The clock `n` before this one, or 0.
    pub const fn minus(self, n: u64) -> Self {
        Self(self.0.saturating_sub(n))
    }
}

/// Sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Peer {
    Server(NodeId),
    Worker(WorkerId),
}
