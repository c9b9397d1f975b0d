//! Coding groups as people look at them.

use crate::{GroupId, Time};

/// One group as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct GroupView {
    pub id: GroupId,
    /// Members it takes.
    pub k: usize,
    pub opened: Time,
    pub closed: Option<Time>,
    /// True if it takes no more.
    pub sealed: bool,
    /// In slot order.
    pub members: Vec<MemberView>,
    /// Where each redundant query stands: `open`, `encoding`, `in_flight`, `output` or `dead`.
    pub parity: Vec<&'static str>,
}

/// One member as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct MemberView {
    /// `waiting`, `awaiting_truth`, `kept`, `done`, or `filler`.
    pub status: &'static str,
    /// True if its own prediction is there.
    pub predicted: bool,
    /// True if a reconstruction answered it.
    pub reconstructed: bool,
    /// True if it counts as late.
    pub late: bool,
}
