//! Refusals of requests.

use serde::{Deserialize, Serialize};

use crate::{Clock, Epoch, Key, NotFinite, ValuesError};

/// Reason why a server refuses a request. A resend of what is applied is acknowledged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The sender's routing table is older or newer than the server's.
    #[error("the range is at {current} here: fetch the routing table and send again")]
    WrongEpoch {
        /// The server's epoch of the range.
        current: Epoch,
    },
    /// The server holds no shard that covers the range.
    #[error("this server does not hold the range: fetch the routing table and send again")]
    UnknownRange,
    /// A push to a server that is not the head of the chain.
    #[error("this server is not the head of the range's chain: push to the head")]
    NotHead,
    /// A pull from a server that is not the tail of the chain.
    #[error("this server is not the tail of the range's chain: pull from the tail")]
    NotTail,
    /// The worker has not joined, or has left.
    #[error("this worker is not a member here, or not yet: join, and send again")]
    UnknownWorker,
    /// An earlier push of this worker has not arrived.
    #[error("{expected} is next for this worker and range: send it first")]
    Gap {
        /// The clock that is due.
        expected: Clock,
    },
    /// Keys out of order, or out of the range.
    #[error(
        "the keys are not ascending within the message's range: sort them and remove duplicates"
    )]
    BadKeys,
    /// Too few or too many values, or values that are not finite.
    #[error(transparent)]
    BadValues(#[from] ValuesError),
    /// The update, of all workers whose pushes it adds up, would make a number that is not finite.
    /// Nothing was changed: each of the workers may push the clock again.
    #[error(
        "the update of key {key} overflows, and was not made: lower the learning rate, or clip \
            gradients"
    )]
    Overflow {
        /// The first such key.
        key: Key,
    },
    /// Rows of a copy that this server cannot hold.
    #[error(
        "the copied rows do not fit this server's array, or are not finite: describe it alike on \
            all servers"
    )]
    BadRows,
    /// The range stands still while its last changes are copied to a server that joins.
    #[error("the range is being handed over: send again shortly")]
    Stopped,
    /// A log or queue is full.
    #[error("the server has too much unacknowledged work for this range: send again shortly")]
    Busy,
}

impl From<NotFinite> for Refusal {
    fn from(NotFinite { key }: NotFinite) -> Self {
        Self::Overflow { key }
    }
}

impl Refusal {
    /// Returns true if the same request can succeed later.
    pub const fn is_retryable(self) -> bool {
        use Refusal::{BadKeys, BadRows, BadValues, Overflow};
        !matches!(self, BadKeys | BadValues(_) | Overflow { .. } | BadRows)
    }

    /// Returns true if the sender needs a newer routing table first.
    pub const fn wants_routing(self) -> bool {
        use Refusal::{NotHead, NotTail, UnknownRange, WrongEpoch};
        matches!(self, WrongEpoch { .. } | UnknownRange | NotHead | NotTail)
    }
}
