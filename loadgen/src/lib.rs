//! Parapet: open-loop load generator.
//!
//! Requests go out at times planned before the run, whatever the server does, and a request's
//! latency counts from its *planned* time: a server that stops for two seconds is charged for every
//! request that was due in them, where a client that waits for answers before it sends on would
//! have measured one slow request (coordinated omission).
//!
//! - [`schedule`]: planned times from a seed; pure.
//! - [`payload`]: rows of an image file as request bodies, encoded before the run.
//! - [`target`]: the server under load, behind the trait [`target::Transport`].
//! - [`run`]: sends requests on time and records their outcomes; generic over pacing and transport.
//! - [`compare`]: strategies measured under one schedule, with intervals; pure.
//! - [`experiment`]: strategies, instances and faults, for real and simulated runs; pure.
//! - [`simulate`]: a whole cluster in virtual time; pure.
//! - [`report`]: from records to figures; pure, and what other programs read.

#![allow(missing_docs, reason = "the programs build on it alone")]

pub mod cluster;
pub mod compare;
pub mod experiment;
pub mod payload;
pub mod report;
pub mod run;
pub mod schedule;
pub mod simulate;
pub mod target;
