//! Room in the connections to servers.

use std::collections::{BTreeMap, BTreeSet};

use crate::NodeId;

/// Bytes of a message beside its keys and values, about.
const HEAD: usize = 128;

/// A message sent without room is lost, and is sent again only after a wait. So a part that finds
/// none stays where it is, in line before those that would overtake it.
#[derive(Debug, Default)]
pub(super) struct SendWindow {
    /// Bytes that each connection can still take; `None` for no limit, until one is reported.
    left: Option<BTreeMap<NodeId, usize>>,
    /// Where parts wait for room.
    held_back: BTreeSet<NodeId>,
}

impl SendWindow {
    pub(super) fn set(&mut self, left: BTreeMap<NodeId, usize>) {
        self.left = Some(left);
        self.held_back.clear();
    }

    pub(super) const fn held_back(&self) -> &BTreeSet<NodeId> {
        &self.held_back
    }

    /// Returns true if a part may go there; if there is a way, but no room, it is waited for.
    pub(super) fn takes(&mut self, to: NodeId) -> bool {
        let Some(left) = &self.left else { return true };
        match left.get(&to) {
            Some(0) => {
                self.held_back.insert(to);
                false
            }
            room => room.is_some(),
        }
    }

    /// A message with so many bytes of keys and values goes there. It may be longer than the room
    /// that it has found.
    pub(super) fn use_up(&mut self, to: NodeId, bytes: usize) {
        if let Some(room) = self.left.as_mut().and_then(|left| left.get_mut(&to)) {
            *room = room.saturating_sub(bytes.saturating_add(HEAD));
        }
    }
}
