//! The parameter server as a cluster of processes.
//!
//! [`node`] is the data plane: servers and workers that exchange the messages of
//! [`parapet_parameter_server`] over Unix sockets and TCP. [`registry`] holds who is there and who
//! leads, in memory, in a process that serves it, or in etcd. [`roles`] are the processes: server,
//! worker and coordinator, with their control plane and commands.

#![allow(missing_docs, reason = "the programs build on it alone")]

pub mod array;
pub mod node;
pub mod registry;
pub mod roles;
