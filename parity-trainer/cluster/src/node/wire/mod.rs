//! The bytes between nodes: a handshake in each direction, then frames.
//!
//! # Frames
//! All numbers are little-endian, and arrays of numbers go out and come in as they lie in memory.
//!
//! ```text
//! header, 16 bytes:  check of the rest of the header u32 | head's length u16 | 0 u16 | length of head and sections u64
//! head:              tag u8 | fixed fields, among them the kinds and lengths of the sections
//! sections:          words u64.. | keys u64.. | values f32.. or u16.. | optimiser state | steps u32..
//! checksum, 8 bytes: of head and sections
//! ```
//!
//! Sections are what may be large. Each is one slice of a vectored write, and is read into the
//! vector that the message will keep. The length is checked against a limit before memory is asked
//! for, and the sections must fill it exactly.
//!
//! The checksum is XXH3-64, and comes last, so that a large frame is never gone through as a whole:
//! each end sums up a piece while it is in the processor's cache, just before it is written or just
//! after it was read. TCP's own 16-bit sums miss one in some ten thousand corrupted segments (Stone
//! & Partridge, SIGCOMM 2000).

mod batch;
mod checksum;
mod decoder;
mod error;
mod fields;
mod handshake;
mod read;
mod write;

use parapet_parameter_server::{Digest, Packed};

pub use batch::Batch;
pub use decoder::{Decoder, Limits};
pub use error::WireError;
pub use handshake::{HELLO_LEN, Hello, PREFIX_LEN, VERSION};

#[cfg(not(target_endian = "little"))]
compile_error!("arrays are sent as they lie in memory, which must be little-endian");

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 16;

/// Bytes of the checksum at a frame's end.
pub const SUM_LEN: usize = 8;

/// Bytes that are summed up and written, or read and summed up, at a time: they fit a
/// processor's second-level cache.
const PIECE: usize = 256 * 1024;

/// Bytes of a head at most.
const MAX_HEAD: usize = 256;

/// One unit of what two nodes send each other.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub enum Frame {
    /// Nothing but a sign of life.
    Heartbeat,
    /// The sender does not have this list of keys: send it again with the next message.
    Forget(Digest),
    /// A message, as its [`parapet_parameter_server::Link`] packed it.
    Message(Packed),
}

impl Frame {
    /// About how many bytes it takes, on the wire and in memory.
    pub fn cost(&self) -> usize {
        write::cost(self)
    }
}

impl From<parapet_parameter_server::Message> for Frame {
    fn from(message: parapet_parameter_server::Message) -> Self {
        Self::Message(Packed {
            message,
            keys: None,
            values: None,
        })
    }
}
