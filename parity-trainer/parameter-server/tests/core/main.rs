//! The core's parts one by one, most of them against a reference that is simple and slow.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "tests")]

mod client;
mod clocks;
mod consistency;
mod coordinator;
mod factors;
mod filtered_training;
mod filters;
mod finite;
mod kkt;
mod links;
mod load;
mod placement;
mod plan;
mod rules;
mod server;
mod store;
mod support;
