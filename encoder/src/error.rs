//! Errors of codes and of groups handed to an encoder.

use thiserror::Error;

/// A setting of a code that cannot be, or that does not fit the model. Found at start-up, never on
/// a request; a retry is of no use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("code.{field}: {problem}; {fix}")]
pub struct CodeError {
    /// Field within the table `code`, as `generator[0][1]`.
    pub field: String,
    /// Value, and the problem with it.
    pub problem: String,
    /// Remedy.
    pub fix: String,
}

impl CodeError {
    /// An error of `field`.
    pub fn new(
        field: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (field, problem, fix) = (field.into(), problem.into(), fix.into());
        Self { field, problem, fix }
    }

    /// A code of networks, which are in its model repository and not in this crate.
    pub fn networks() -> Self {
        let fix = "load the code from its model repository";
        Self::new("encoder", "\"learned\" has networks of its own", fix)
    }
}

/// A group that does not fit the code, by the caller's bug or a bad answer; harms only that group.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Row index out of range.
    #[error("parity row {row} asked of a code with r = {r}")]
    NoSuchRow { row: usize, r: usize },
    /// Not k queries.
    #[error("a coding group of {got} queries was handed to a code with k = {expected}")]
    GroupSize { expected: usize, got: usize },
    /// Queries of a group differ in length.
    #[error("query in slot {slot} has {got} elements where its group has {expected}")]
    UnequalLength { slot: usize, expected: usize, got: usize },
    /// The length is not a whole number of samples.
    #[error("{len} elements are not a whole number of samples of {sample_len} elements")]
    PartialSample { len: usize, sample_len: usize },
    /// A learned encoder's network broke; the runtime's message is on one line.
    #[error("the encoder's network failed: {reason}")]
    Network { reason: String },
}
