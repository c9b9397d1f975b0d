//! Parapet: HTTP accept loop with limits, timeouts and graceful drain.
//!
//! [`serve`] runs an axum router on a listener with HTTP/1.1. What it guarantees:
//!
//! - at most [`Limits::max_connections`] connections are open; further ones wait in the kernel's backlog. Turning them
//!   away with a response would have to read their requests first, which is the work the limit is there to bound;
//! - a connection that does not send a request's header within [`Limits::header_read_timeout`] is closed. The time runs
//!   between requests too, so that idle connections free their place; clients should close theirs sooner;
//! - a connection that takes nothing of its response for [`Limits::write_timeout`] is closed;
//! - when accepting fails for want of files or memory, it is tried again after a pause, and what is open goes on;
//! - on shutdown nothing more is accepted, idle connections are closed, and requests in flight may finish within the
//!   grace period; what is left then is dropped, and with it the request's future.
//!
//! Bodies are the handlers' to read: [`read_body`] reads one with a limit and a timeout.

mod accept;
mod body;
mod connection;
mod limits;
mod listen;
mod serve;
mod write_timeout;

pub use body::{BodyError, read_body};
pub use limits::Limits;
pub use listen::listen;
pub use serve::{DrainReport, serve};
