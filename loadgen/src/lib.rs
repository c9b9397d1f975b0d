//! Parapet: open-loop load generator.
//!
//! Requests go out at times planned before the run, whatever the server does, and a request's latency counts from its
//! *planned* time: a server that stops for two seconds is charged for every request that was due in them, where a client
//! that waits for answers before it sends on would have measured one slow request (coordinated omission).
//!
//! - [`schedule`]: planned times from a seed; pure.
//! - [`payload`]: rows of an image file as request bodies, encoded before the run.

pub mod payload;
pub mod schedule;
