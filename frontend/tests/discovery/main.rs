//! Backends against what they speak with: a name server, a real etcd, an API server in memory; and
//! an outage of each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

mod dns;
mod etcd;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod settings;
mod views;

use std::net::SocketAddr;
use std::time::Duration;

use parapet_frontend::discovery::{Addresses, Place, View};
use tokio::sync::watch;

fn addresses(list: &[&str]) -> Addresses {
    list.iter().map(|address| address.parse::<SocketAddr>().unwrap().into()).collect()
}

/// The same, found by these names.
fn named(list: &[(&str, &str)]) -> Addresses {
    let place = |(address, host): &(&str, &str)| Place {
        address: address.parse().unwrap(),
        host: Some((*host).into()),
    };
    list.iter().map(place).collect()
}

/// Waits until what is known is as wanted; the limit only keeps a broken test from
/// waiting for ever.
async fn until(view: &mut watch::Receiver<View>, what: &str, wanted: impl FnMut(&View) -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(60), view.wait_for(wanted)).await;
    let found = waited.is_ok_and(|view| view.is_ok());
    assert!(found, "not {what}: {:?}", view.borrow().clone());
}

/// The same until these addresses are known, and the backend is there.
async fn until_found(view: &mut watch::Receiver<View>, addresses: &Addresses) {
    let found = |view: &View| view.is_current && view.addresses == *addresses;
    until(view, "found", found).await;
}
