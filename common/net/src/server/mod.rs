//! HTTP accept loop with limits, timeouts and graceful drain.
//!
//! [`Server::new`] makes a server of an axum router with HTTP/1.1, [`Server::over_http2`] of any
//! service with HTTP/2. Guarantees of both:
//!
//! - at most [`Limits::max_connections`] connections are open; further ones wait in the kernel's
//!   backlog. Turning them away with a response would have to read their requests first, which is
//!   the work the limit is there to bound;
//! - one peer has at most [`Limits::max_connections_per_peer`] of them; more are closed at once,
//!   since in the backlog they would hold others up;
//! - a connection that does not send a request's header within [`Limits::header_read_timeout`] is
//!   closed. The time runs between requests too, so that idle connections free their place; clients
//!   should close theirs sooner;
//! - a connection that takes nothing of its response for [`Limits::write_timeout`], or less than
//!   [`Limits::min_write_rate`] after it, is closed. With HTTP/2 that goes for each response,
//!   whether it is the socket or its stream's window that has no room; at most 16 KB of a response
//!   wait in the window unseen;
//! - a connection older than [`Limits::max_connection_age`] is closed after its requests in flight;
//! - an HTTP/2 connection that opens streams to reset them, keeps breaking the protocol, or brings
//!   a megabyte of other frames than requests', and eight times the bytes of these, is closed;
//! - a response that comes before its request's body was read still reaches its client: what the
//!   client is sending is read and thrown away for a moment;
//! - a client socket's write half is its interest in answers: closing it abandons its request;
//! - an accept that lacks files or memory is retried after a pause, and what is open goes on;
//! - on shutdown nothing more is accepted but what the system has accepted already, idle
//!   connections are closed 50 ms later, and requests in flight may finish within the grace period;
//!   what is left then is dropped, and with it the request's future.
//!
//! Bodies are the handlers' to read: [`read_body`] reads one with a limit and a timeout,
//! [`read_body_within`] also within the memory that all bodies share.

mod accept;
mod body;
mod body_memory;
mod client_io;
mod http2;
mod peers;
mod serve;

pub use accept::listen;
pub use body::{BodyError, read_body, read_body_within};
pub use body_memory::{Allowance, BodyMemory, Reserved};
pub use http2::{Http2, RequestBody, ResponseBody};
pub use peers::Connections;
pub use serve::{DrainReport, Http1, Limits, Peer, Protocol, Server};
