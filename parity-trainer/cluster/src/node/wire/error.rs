//! Errors of bytes from a peer.

use super::VERSION;

/// Reason why bytes from a peer are not taken. The connection is of no more use; who the peer is,
/// its owner says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
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
    #[error(
        "a frame of kind {0}, which this release does not know: run the same release on all nodes"
    )]
    UnknownTag(u8),
    #[error("a frame with {0}: run the same release on all nodes")]
    Malformed(&'static str),
}
