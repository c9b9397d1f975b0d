//! The bytes between nodes: a handshake in each direction, then frames.
//!
//! # Frames
//! Numbers of a header are little-endian. The head is a [`Frame`] as postcard writes it, without
//! its arrays of numbers: those follow as sections, as they lie in memory.
//!
//! ```text
//! header, 16 bytes:  check of its rest u32 | length of the head u32 | of head and sections u64
//! head:              frame | for each section, the count of its numbers
//! sections:          keys u64.. | values f32.. or u16.. | state | steps u32.. | compressed u8..
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
//! & Partridge, SIGCOMM 2000). XXH3 goes through such a piece at 43 GB/s where a processor has
//! AVX2, against 12 GB/s of a CRC-64. Either misses one corruption in 2^64; a CRC's certainty about
//! short bursts would be gained for a quarter of a server's time.

mod decoder;
mod frame;

use parapet_parameter_server::Peer;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

pub use decoder::Decoder;
pub use frame::Frame;
pub(super) use frame::Section;

#[cfg(not(target_endian = "little"))]
compile_error!("arrays are sent as they lie in memory, which must be little-endian");

pub const HEADER_LEN: usize = 16;

pub const SUM_LEN: usize = 8;

/// Bytes that are summed up and written, or read and summed up, at a time: they fit a
/// processor's second-level cache.
pub(super) const PIECE: usize = 256 * 1024;

/// Bytes of a head at most: the clocks of some 50,000 workers.
pub(super) const MAX_HEAD: usize = 1 << 20;

/// Reason why bytes from a peer are not taken. The connection is of no more use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("it does not speak the parameter server's protocol: check the address")]
    NotOurs,
    #[error(
        "it speaks protocol version {found}, this node version {VERSION}: run the same release on \
            all nodes"
    )]
    Version { found: u16 },
    #[error(
        "it belongs to the cluster \"{found}\", this node to \"{own}\": check the address or the \
            cluster's name"
    )]
    Cluster { found: String, own: String },
    #[error("its handshake is damaged: connect again")]
    Handshake,
    #[error(
        "it takes frames of {found} bytes, this node of {own}: set the same limit on all nodes"
    )]
    FrameLimit { found: u64, own: u64 },
    #[error(
        "a frame of {length} bytes, and {limit} are the limit: cut the push or pull, or raise the \
            limit on all nodes"
    )]
    TooLong { length: u64, limit: u64 },
    #[error("a frame's header is damaged: connect again")]
    Header,
    #[error(
        "a frame's checksum is wrong: connect again; if it happens often, check the network's \
            hardware"
    )]
    Checksum,
    #[error("a frame with {0}: run the same release on all nodes")]
    Malformed(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) head: usize,
    pub(super) length: usize,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let (place, fields) = bytes.split_at_mut(4);
        let (head, length) = fields.split_at_mut(4);
        head.copy_from_slice(&(self.head as u32).to_le_bytes());
        length.copy_from_slice(&(self.length as u64).to_le_bytes());
        place.copy_from_slice(&check(fields));
        bytes
    }

    fn decode(bytes: &[u8; HEADER_LEN], limit: u64) -> Result<Self, WireError> {
        let [a, b, c, d, fields @ ..] = bytes;
        if !agree([*a, *b, *c, *d], check(fields)) {
            return Err(WireError::Header);
        }
        let [a, b, c, d, length @ ..] = *fields;
        let (head, length) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(length));
        if length > limit {
            return Err(WireError::TooLong { length, limit });
        }
        let (head, length) = (head as usize, length as usize);
        if head > length.min(MAX_HEAD) {
            return Err(WireError::Malformed("a head longer than any"));
        }
        Ok(Self { head, length })
    }
}

fn check(bytes: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = XxHash3_64::oneshot(bytes).to_le_bytes();
    [a, b, c, d]
}

/// Returns true if two checksums agree. A fuzzer is not asked to find one.
fn agree<T: PartialEq>(one: T, other: T) -> bool {
    one == other || cfg!(feature = "fuzzing")
}

/// Of the protocol; two nodes speak only if theirs are equal.
pub const VERSION: u16 = 9;

/// Bytes of a handshake: the prefix, the node's [`Hello`], zeros, and a check of it all.
pub const HELLO_LEN: usize = 100;

/// The part of it that stays the same in every version: the magic number and the version.
pub const PREFIX_LEN: usize = 10;

/// The first byte is no text, so that no line of another protocol looks alike.
const MAGIC: [u8; 8] = *b"\x93PARAPET";

const MAX_CLUSTER: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub peer: Peer,
    /// The cluster's name; the first 64 bytes count.
    pub cluster: String,
    pub max_frame: u64,
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        let short = (self.peer, self.short_cluster(), self.max_frame);
        let (content, place) = bytes.split_at_mut(HELLO_LEN - 4);
        let (prefix, fields) = content.split_at_mut(PREFIX_LEN);
        let (magic, version) = prefix.split_at_mut(MAGIC.len());
        magic.copy_from_slice(&MAGIC);
        version.copy_from_slice(&VERSION.to_le_bytes());
        // It fits: names are cut, and postcard takes up to 10 bytes for a number.
        let _ = postcard::to_slice(&short, fields);
        place.copy_from_slice(&check(content));
        bytes
    }

    fn short_cluster(&self) -> &str {
        let end = self.cluster.floor_char_boundary(MAX_CLUSTER);
        self.cluster.get(..end).unwrap_or_default()
    }

    /// Checks the first bytes: those of another version may be followed by anything.
    pub fn check_prefix(prefix: &[u8; PREFIX_LEN]) -> Result<(), WireError> {
        let [magic @ .., a, b] = *prefix;
        if magic != MAGIC {
            return Err(WireError::NotOurs);
        }
        match u16::from_le_bytes([a, b]) {
            VERSION => Ok(()),
            found => Err(WireError::Version { found }),
        }
    }

    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, WireError> {
        let (content, place) = bytes.split_at(HELLO_LEN - 4);
        if place != check(content) {
            return Err(WireError::Handshake);
        }
        let fields = content.split_at(PREFIX_LEN).1;
        postcard::from_bytes(fields).map_err(|_| WireError::Handshake)
    }

    /// Checks that this node and a peer that says `other` can work together.
    pub fn accept(&self, other: &Self) -> Result<(), WireError> {
        if self.short_cluster() != other.short_cluster() {
            return Err(WireError::Cluster {
                found: other.cluster.clone(),
                own: self.cluster.clone(),
            });
        }
        if self.max_frame != other.max_frame {
            return Err(WireError::FrameLimit { found: other.max_frame, own: self.max_frame });
        }
        Ok(())
    }
}
