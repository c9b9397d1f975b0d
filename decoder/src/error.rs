//! Why a prediction could not be reconstructed.

use thiserror::Error;

/// Reason why a slot could not be reconstructed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The slices do not have k and r entries, or the slot is out of range.
    #[error(
        "decoder for k = {k}, r = {r} was handed {predictions} predictions, {parity} parity \
            outputs, slot {slot}"
    )]
    GroupShape {
        /// Queries of a group.
        k: usize,
        /// Number of parity rows.
        r: usize,
        /// Predictions handed in.
        predictions: usize,
        /// Parity outputs handed in.
        parity: usize,
        /// Slot asked for.
        slot: usize,
    },
    /// The parity outputs that are there are too few for the missing predictions.
    #[error("{missing} predictions are missing and only {available} parity outputs are there")]
    Unrecoverable {
        /// Number of missing predictions.
        missing: usize,
        /// Parity outputs that answered.
        available: usize,
    },
    /// The slot asked for has its exact prediction.
    #[error("slot {slot} is not missing")]
    NotMissing {
        /// Slot of the bad prediction.
        slot: usize,
    },
    /// A prediction has another length than `out`, or a parity output than its slots.
    #[error("an output of the group has {got} elements where {expected} are wanted")]
    UnequalLength {
        /// Elements that it should have.
        expected: usize,
        /// Elements of the odd one.
        got: usize,
    },
    /// The system had no stable solution. Cannot happen for a validated
    /// [`Code`](parapet_encoder::Code).
    #[error("the parity rows that answered do not determine the missing predictions")]
    Singular,
    /// A learned decoder's network broke.
    #[error("the decoder's network failed: {reason}")]
    Network {
        /// Message of the runtime, on one line.
        reason: String,
    },
}
