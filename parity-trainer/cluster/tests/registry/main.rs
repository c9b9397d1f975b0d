//! Registries in memory, served by a process and in etcd.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod conformance;
mod etcd;
mod leading;
mod served;
mod support;
