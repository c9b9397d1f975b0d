//! The first bytes of a connection, in each direction.

use parapet_parameter_server::{NodeId, Peer, WorkerId};

use super::checksum;
use super::error::WireError;
use super::fields::{Fields, Put as _};

/// Of the protocol; two nodes speak only if theirs are equal.
pub const VERSION: u16 = 4;

/// Bytes of a handshake.
pub const HELLO_LEN: usize = 96;

/// The part of it that stays the same in every version: the magic number and the version.
pub const PREFIX_LEN: usize = 10;

/// The first byte is no text, so that no line of another protocol looks alike.
const MAGIC: [u8; 8] = *b"\x93PARAPET";

const MAX_CLUSTER: usize = 64;

/// First message of a node, which identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub peer: Peer,
    /// The cluster's name; the first 64 bytes count.
    pub cluster: String,
    /// The longest frame that it takes, in bytes.
    pub max_frame: u64,
}

impl Hello {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = Vec::with_capacity(HELLO_LEN);
        bytes.put(&MAGIC);
        bytes.u16(VERSION);
        let (kind, id) = match self.peer {
            Peer::Server(node) => (0, node.0),
            Peer::Worker(worker) => (1, worker.0),
        };
        let cluster = self.short_cluster().as_bytes();
        bytes.u8(kind);
        bytes.u8(u8::try_from(cluster.len()).unwrap_or_default());
        bytes.u64(id);
        bytes.u64(self.max_frame);
        bytes.put(cluster);
        bytes.resize(HELLO_LEN - 4, 0);
        bytes.u32(checksum::of_header(&bytes));
        let mut hello = [0; HELLO_LEN];
        hello
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = from);
        hello
    }

    fn short_cluster(&self) -> &str {
        let end = (0..=MAX_CLUSTER.min(self.cluster.len()))
            .rev()
            .find(|&end| self.cluster.is_char_boundary(end));
        self.cluster.get(..end.unwrap_or(0)).unwrap_or_default()
    }

    /// Checks the first bytes: those of another version may be followed by anything.
    pub fn check_prefix(prefix: &[u8; PREFIX_LEN]) -> Result<(), WireError> {
        let mut fields = Fields(prefix);
        if fields.take::<8>()? != MAGIC {
            return Err(WireError::NotOurs);
        }
        match fields.u16()? {
            VERSION => Ok(()),
            found => Err(WireError::Version { found }),
        }
    }

    pub fn decode(bytes: &[u8; HELLO_LEN]) -> Result<Self, WireError> {
        let mut fields = Fields(bytes);
        Self::check_prefix(&fields.take()?)?;
        let (content, check) = bytes.split_at(HELLO_LEN - 4);
        if Fields(check).u32()? != checksum::of_header(content) {
            return Err(WireError::Handshake);
        }
        let (kind, length, id, max_frame) =
            (fields.u8()?, fields.u8()?, fields.u64()?, fields.u64()?);
        let peer = match kind {
            0 => Peer::Server(NodeId(id)),
            1 => Peer::Worker(WorkerId(id)),
            _ => return Err(WireError::Handshake),
        };
        let cluster = fields
            .0
            .get(..usize::from(length))
            .and_then(|name| std::str::from_utf8(name).ok());
        match cluster {
            Some(cluster) if cluster.len() <= MAX_CLUSTER => Ok(Self {
                peer,
                cluster: cluster.to_owned(),
                max_frame,
            }),
            _ => Err(WireError::Handshake),
        }
    }

    /// Returns true if this node and a peer that says `other` can work together.
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
