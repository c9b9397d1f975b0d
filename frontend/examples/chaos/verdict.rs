//! Outcomes of judging an answer.

use std::fmt;

/// Kind of an answer that is as it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Exact,
    Hedged,
    Backup,
    Reconstructed,
    Overloaded,
    DeadlineExceeded,
    Upstream,
    Refused,
}

impl Verdict {
    pub const PREDICTIONS: [Self; 4] =
        [Self::Exact, Self::Hedged, Self::Backup, Self::Reconstructed];
    /// Errors that are not the client's.
    pub const ERRORS: [Self; 3] = [Self::Overloaded, Self::DeadlineExceeded, Self::Upstream];

    /// Name of it in metrics.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Hedged => "hedged",
            Self::Backup => "backup",
            Self::Reconstructed => "reconstructed",
            Self::Overloaded => "overloaded or unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Upstream => "upstream",
            Self::Refused => "invalid_request",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub said: String,
}

impl Violation {
    pub fn new(invariant: &'static str, said: impl Into<String>) -> Self {
        Self {
            invariant,
            said: said.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.said)
    }
}
