//! Errors of bytes from a peer.

use super::VERSION;

/// Reason why bytes from a peer are not taken. The connection is of no more use; who the peer is,
/// its owner says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Something else speaks at the other end.
    #[error("it does not speak the parameter server's protocol: check the address")]
    NotOurs,
    /// Another version of the protocol.
    #[error(
        "it speaks protocol version {found}, this node version {VERSION}: run the same release on \
            all nodes"
    )]
    Version { found: u16 },
    /// A node of another cluster.
    #[error(
        "it belongs to the cluster \"{found}\", this node to \"{own}\": check the address or the \
            cluster's name"
    )]
    Cluster { found: String, own: String },
    /// The handshake's checksum or fields are wrong.
    #[error("its handshake is damaged: connect again")]
    Handshake,
    /// Frames that one of the two would refuse.
    #[error(
        "it takes frames of {found} bytes, this node of {own}: set the same limit on all nodes"
    )]
    FrameLimit { found: u64, own: u64 },
    /// A frame above the limit.
    #[error(
        "a frame of {length} bytes, and {limit} are the limit: cut the push or pull, or raise the \
            limit on all nodes"
    )]
    TooLong { length: u64, limit: u64 },
    /// The header is not what was sent.
    #[error("a frame's header is damaged: connect again")]
    Header,
    /// The content is not what was sent.
    #[error(
        "a frame's checksum is wrong: connect again; if it happens often, check the network's \
            hardware"
    )]
    Checksum,
    /// A kind of frame that this version does not know.
    #[error(
        "a frame of kind {0}, which this release does not know: run the same release on all nodes"
    )]
    UnknownTag(u8),
    /// A frame whose checksum is right and whose content makes no sense.
    #[error("a frame with {0}: run the same release on all nodes")]
    Malformed(&'static str),
}
