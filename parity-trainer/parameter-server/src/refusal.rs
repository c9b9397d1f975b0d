//! Refusals of requests.

use serde::{Deserialize, Serialize};

use crate::{Clock, Epoch, Key, NotFinite, ValuesError};

/// Reason why a server refuses a request. A resend of what is applied is acknowledged again.
#[allow(missing_docs, reason = "the messages say what they are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("the range is at {current} here: fetch the routing table and send again")]
    WrongEpoch { current: Epoch },
    #[error("this server does not hold the range: fetch the routing table and send again")]
    UnknownRange,
    #[error("this server is not the head of the range's chain: push to the head")]
    NotHead,
    #[error("this server is not the tail of the range's chain: pull from the tail")]
    NotTail,
    #[error("this worker is not a member here, or not yet: join, and send again")]
    UnknownWorker,
    #[error("{expected} is next for this worker and range: send it first")]
    Gap { expected: Clock },
    #[error(
        "the keys are not ascending within the message's range: sort them and remove duplicates"
    )]
    BadKeys,
    #[error(transparent)]
    BadValues(#[from] ValuesError),
    #[error(
        "the update of key {key} overflows, and was not made: lower the learning rate, or clip \
            gradients"
    )]
    Overflow { key: Key },
    #[error(
        "the copied rows do not fit this server's array, or are not finite: describe it alike on \
            all servers"
    )]
    BadRows,
    #[error("the range is being handed over: send again shortly")]
    Stopped,
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
