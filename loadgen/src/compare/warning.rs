//! What a reader of a comparison should know before its figures.

use serde::{Deserialize, Serialize};

/// A reason not to take the figures at their face.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Its kind.
    pub kind: WarningKind,
    /// The strategy that it is about; `None` if it is about all.
    pub strategy: Option<String>,
    /// What is wrong and what to do, in a line.
    pub text: String,
}

/// Kinds of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The generator was late.
    InvalidGenerator,
    /// The comparison was ended early.
    Partial,
    /// Strategies had different numbers of instances.
    UnequalInstances,
    /// Requests had no answer.
    NoAnswer,
    /// The rounds are too few for the bootstrap.
    FewRounds,
    /// A percentile has too few samples.
    NotQuotable,
    /// The strategy does worse than the baseline.
    Loses,
}
