//! The first bytes of a connection, in each direction.

use parapet_parameter_server::Peer;
use serde::{Deserialize, Serialize};

use super::{WireError, check};

/// Of the protocol; two nodes speak only if theirs are equal.
pub const VERSION: u16 = 6;

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
    /// The longest frame that it takes, in bytes.
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
        let (hello, _) =
            postcard::take_from_bytes::<Self>(fields).map_err(|_| WireError::Handshake)?;
        Ok(hello)
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
            return Err(WireError::FrameLimit {
                found: other.max_frame,
                own: self.max_frame,
            });
        }
        Ok(())
    }
}
