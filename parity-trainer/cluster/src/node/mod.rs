//! The parameter server's data plane: what carries messages between the state machines of
//! `parapet-parameter-server`, and the tasks that drive those.
//!
//! - [`wire`]: bytes of handshakes and frames; pure.
//! - [`transport`]: connections over TCP or in memory.
//! - [`membership`]: what a node hears from the registry and tells it.
//! - [`ServerNode`] and [`ClientNode`]: a state machine with connections, a clock and timers.
//!
//! Every interval and timeout follows from one setting, the heartbeat ([`Timing`]). Every queue is
//! bounded in bytes: a node takes a peer's requests only while there is room for the answers.

mod client;
mod connections;
mod counters;
mod membership;
mod server;
mod timing;
pub mod transport;
pub mod wire;

pub use client::{
    ClientNode, ClientNodeConfig, Pending, Pulled, PushPull, TaskError, TaskId, TaskSpec, Worker,
};
pub use counters::Counters;
pub use membership::Membership;
pub use server::{ServerHandle, ServerNode, ServerNodeConfig};
pub use timing::Timing;
