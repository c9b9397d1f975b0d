//! Operations: keys and quotas, the admin listener, TLS, reloads, and restarts that
//! lose no request.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod live;
mod reload;
mod rolling;
mod served;
mod tls;
