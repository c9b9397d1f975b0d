//! A store in one process that serves it to the others over gRPC: for clusters with nothing else to
//! start.
//!
//! It holds its entries in the process's memory, and they are lost with it: then servers and
//! workers go on with the routing table they have, but none joins and none is replaced. Each life
//! of the process has a number of its own, which every request names, so that a new, empty store is
//! not taken for the one before. Where that is too little, use etcd.

mod client;
mod server;

pub use client::{ServedConfig, ServedStore};
pub use server::{ServeConfig, serve_store};

#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    unreachable_pub,
    reason = "generated"
)]
mod proto {
    tonic::include_proto!("parapet.registry.v1");
}

/// Bytes of a message, at most: all keys come in one.
const MAX_MESSAGE: usize = 64 << 20;

impl From<crate::registry::Entry> for proto::Entry {
    fn from(entry: crate::registry::Entry) -> Self {
        Self {
            key: entry.key,
            value: entry.value,
            modified: entry.modified.0,
        }
    }
}

impl From<proto::Entry> for crate::registry::Entry {
    fn from(entry: proto::Entry) -> Self {
        Self {
            key: entry.key,
            value: entry.value,
            modified: crate::registry::Revision(entry.modified),
        }
    }
}
