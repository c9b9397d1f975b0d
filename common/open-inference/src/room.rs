//! Memory of messages.

use crate::ProtocolError;

/// Memory for a message and for what it decodes to, asked for before it is set aside.
pub trait Room: Send + 'static {
    /// Sets aside `bytes` bytes in all.
    ///
    /// # Errors
    /// [`ProtocolError::NoMemory`].
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError>;
}

/// Room without a bound.
#[derive(Debug)]
pub struct Unbounded;

impl Room for Unbounded {
    fn hold(&mut self, _: usize) -> Result<(), ProtocolError> {
        Ok(())
    }
}

/// Contents that a body decodes to, beside itself.
pub(crate) struct Contents<'r> {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
    pub(crate) room: &'r mut dyn Room,
}

impl Contents<'_> {
    /// Reserves memory for `more` bytes of a tensor, and for `copies` bytes needed to read it.
    pub(crate) fn grow(&mut self, more: usize, copies: usize) -> Result<(), ProtocolError> {
        self.bytes = self.bytes.saturating_add(more);
        let (bytes, limit) = (self.bytes, self.limit);
        ensure!(bytes <= limit, ProtocolError::Contents { bytes, limit });
        self.hold(copies)
    }

    /// Sets memory aside for `copies` bytes beside the contents.
    pub(crate) fn hold(&mut self, copies: usize) -> Result<(), ProtocolError> {
        self.room.hold(self.bytes.saturating_add(copies))
    }
}
