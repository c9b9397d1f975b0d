//! Why a prediction could not be reconstructed.

use thiserror::Error;

/// Reason why a slot could not be reconstructed.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The slices do not have k and r entries, or the slot is out of range.
    #[error(
        "decoder for k = {k}, r = {r} was handed {predictions} predictions, {parity} parity \
            outputs, slot {slot}"
    )]
    GroupShape { k: usize, r: usize, predictions: usize, parity: usize, slot: usize },
    /// The parity outputs that are there are too few for the missing predictions.
    #[error("{missing} predictions are missing and only {available} parity outputs are there")]
    Unrecoverable { missing: usize, available: usize },
    /// The slot asked for has its exact prediction.
    #[error("slot {slot} is not missing")]
    NotMissing { slot: usize },
    /// A prediction has another length than `out`, or a parity output than its slots.
    #[error("an output of the group has {got} elements where {expected} are wanted")]
    UnequalLength { expected: usize, got: usize },
    /// The system had no stable solution. Cannot happen for a validated
    /// [`Code`](parapet_encoder::Code).
    #[error("the parity rows that answered do not determine the missing predictions")]
    Singular,
    /// A learned decoder's network broke; the runtime's message is on one line.
    #[error("the decoder's network failed: {reason}")]
    Network { reason: String },
}
