//! Operations: keys and quotas, the admin listener, TLS, reloads, and restarts that lose no
//! request.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod foreign;
mod live;
mod reload;
mod rolling;
mod tls;

use std::net::SocketAddr;

use http::{Method, StatusCode};
use parapet_frontend::tenants::Key;
use support::instance::{self, HANG};
use support::served::*;
use support::*;

fn tenant(name: &str, key: &Key, more: &str) -> String {
    let hash = key.hash();
    format!("[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{hash}\"]\n{more}\n")
}

fn bearer(key: &Key) -> String {
    format!("Bearer {}", key.text())
}

async fn ask_as(address: SocketAddr, key: &Key, sample: &[f32]) -> Answer {
    let headers = [("authorization", &*bearer(key))];
    post(address, INFER, &headers, body(sample, "")).await
}

/// The status of the answer to the sample.
async fn status_as(address: SocketAddr, key: &Key) -> u16 {
    ask_as(address, key, &SAMPLE).await.status.as_u16()
}

async fn reload(admin: SocketAddr) -> Answer {
    post(admin, "/admin/reload", &[], "").await
}
