//! Nodes on real sockets and in memory: a cluster of them, transports and the wire format.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cluster;
mod frames;
mod handshake;
mod harness;
#[path = "../support/in_process.rs"]
mod in_process;
mod transport;
mod wire;
