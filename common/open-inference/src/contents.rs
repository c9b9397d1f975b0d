//! Memory of the contents that a body decodes to.

use crate::{ProtocolError, Room};

/// Contents that a body decodes to, beside itself.
pub(crate) struct Contents<'r> {
    room: &'r mut dyn Room,
    bytes: usize,
}

impl<'r> Contents<'r> {
    pub(crate) fn of(room: &'r mut dyn Room) -> Self {
        Self { room, bytes: 0 }
    }

    /// Sets memory aside for `more` bytes of a tensor, and for `copies` bytes that are needed while
    /// it is read.
    pub(crate) fn grow(&mut self, more: usize, copies: usize) -> Result<(), ProtocolError> {
        self.bytes = self.bytes.saturating_add(more);
        let (bytes, limit) = (self.bytes, self.room.max_contents());
        if bytes > limit {
            return Err(ProtocolError::Contents { bytes, limit });
        }
        self.hold(copies)
    }

    /// Sets memory aside for `copies` bytes beside the contents.
    pub(crate) fn hold(&mut self, copies: usize) -> Result<(), ProtocolError> {
        if self.room.hold(self.bytes.saturating_add(copies)) {
            Ok(())
        } else {
            Err(ProtocolError::NoMemory)
        }
    }
}
