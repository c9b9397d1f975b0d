//! Behaviour of a registry that only etcd can cause.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{
    ArrayInfo, Batch, Entry, EtcdStore, Joining, LeaseId, Registry, RegistryError, Store,
    Transaction, View,
};
use parapet_parameter_server::{ArrayId, KeyRange};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::support::etcd::{Etcd, registry, store};
use crate::support::proxy::Proxy;
use crate::support::{LIMIT, join_server, until};

/// An etcd, or the end of a test where there is none.
macro_rules! etcd {
    () => {
        match Etcd::start().await {
            Some(etcd) => etcd,
            None => return,
        }
    };
}

async fn define(registry: &Registry, array: u32) {
    let keys = KeyRange::new(0, 10);
    let info = ArrayInfo { keys, shards: vec![keys], description: String::new() };
    registry.define(ArrayId(array), &info).await.unwrap();
}

/// Waits until the registry answers with so many servers and arrays.
async fn sees(registry: &Registry, servers: usize, arrays: usize) {
    let is_so = |view: &View| {
        view.reachable && (view.servers.len(), view.arrays.len()) == (servers, arrays)
    };
    until(registry, is_so).await;
}

async fn client(etcd: &Etcd) -> etcd_client::Client {
    etcd_client::Client::connect([etcd.endpoint()], None).await.unwrap()
}

#[tokio::test]
async fn etcd_that_is_not_there_is_named_in_one_line() {
    // A port that takes connections and never answers, and one that is closed.
    let [silent, closed] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let endpoints = [&silent, &closed].map(|at| at.local_addr().unwrap().to_string());
    drop(closed);
    for endpoint in endpoints {
        let start = Instant::now();
        let error = EtcdStore::connect(std::slice::from_ref(&endpoint), "default").await;
        let error = error.unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
        let line = error.to_string();
        let is_named = line.contains(&endpoint) && line.contains("--registry");
        assert!(is_named && !line.contains('\n'), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_in_one_etcd_do_not_see_each_other() {
    let etcd = etcd!();
    let open = async |cluster: &str| {
        let store = EtcdStore::connect(&[etcd.endpoint()], cluster).await.unwrap();
        Registry::open(Arc::new(store)).await.unwrap()
    };
    // One name begins with the other.
    let (one, other) = (open("a").await, open("ab").await);
    let _server = join_server(&other, "b:1").await;
    until(&other, |view| view.servers.len() == 1).await;
    let _worker = one.join(Joining::Host).await.unwrap();
    let view = until(&one, |view| view.present_workers.len() == 1).await;
    assert!(view.servers.is_empty());
}

/// A machine that is there, and a process on it that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_never_answers_is_not_asked_again() {
    let etcd = etcd!();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    let registry = registry(&[silent, etcd.endpoint()]).await;
    let (member, _) = join_server(&registry, "a:1").await;
    for array in 0..20 {
        define(&registry, array).await;
    }
    sees(&registry, 1, 20).await;
    member.leave().await.unwrap();
}

async fn put(store: &EtcdStore, key: &str, lease: Option<LeaseId>) {
    let transaction = Transaction::default().put(key, "x".into(), lease);
    store.commit(transaction).await.unwrap();
}

/// Waits until followers are told of `key`.
async fn told(batches: &mut mpsc::Receiver<Batch>, key: &str) {
    let is_it = |entry: &Entry| entry.key == key;
    let tell = async {
        loop {
            match batches.recv().await.unwrap() {
                Batch::Away => panic!("one member answers all the time"),
                Batch::All(all) if all.iter().any(is_it) => return,
                Batch::Changes(changes) if changes.iter().flatten().any(is_it) => return,
                Batch::Changes(_) | Batch::All(_) => {}
            }
        }
    };
    timeout(LIMIT, tell).await.unwrap();
}

/// Waits as long as a lease lasts that is not renewed.
async fn outlive(etcd: &Etcd) {
    let mut client = client(etcd).await;
    let unattended = client.lease_grant(1, None).await.unwrap().id();
    let ends = async {
        let mut left = 1;
        while left >= 0 {
            let asked = client.lease_time_to_live(unattended, None).await;
            left = asked.unwrap().ttl();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, ends).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_watches_leave_a_member_that_falls_silent() {
    let etcd = etcd!();
    let proxy = Proxy::start(etcd.endpoint()).await;
    let far = store(&[proxy.endpoint(), etcd.endpoint()]).await;
    let near = etcd.store().await;
    let mut batches = far.follow();
    put(&near, "before", None).await;
    told(&mut batches, "before").await;

    proxy.fall_silent();
    // The only sign is that the watch leaves by itself: there are no requests.
    put(&near, "watched", None).await;
    told(&mut batches, "watched").await;
    put(&far, "asked", None).await;
    told(&mut batches, "asked").await;
}

/// There are no requests meanwhile. Two leases that are not renewed end, one after the other; the
/// one that is renewed does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_alone_leaves_a_member_that_falls_silent() {
    let etcd = etcd!();
    let proxy = Proxy::start(etcd.endpoint()).await;
    let far = store(&[proxy.endpoint(), etcd.endpoint()]).await;
    let lease = far.grant().await.unwrap();
    put(&far, "kept", Some(lease.id())).await;
    proxy.fall_silent();
    outlive(&etcd).await;
    outlive(&etcd).await;
    let kept = etcd.store().await.get("kept").await.unwrap();
    assert!(kept.is_some(), "the lease is renewed by way of the other member");
}

/// The watch cannot be taken up where it broke off: those changes are compacted away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_survives_compaction() {
    let etcd = etcd!();
    let proxy = Proxy::start(etcd.endpoint()).await;
    let (far, near) = (registry(&[proxy.endpoint()]).await, etcd.registry().await);
    define(&near, 1).await;
    let (member, _) = join_server(&near, "a:1").await;
    sees(&far, 1, 1).await;

    proxy.set_open(false);
    until(&far, |view| !view.reachable).await;
    member.leave().await.unwrap();
    define(&near, 2).await;
    let mut client = client(&etcd).await;
    let last = client.get("x", None).await.unwrap();
    let last = last.header().unwrap().revision();
    client.compact(last, None).await.unwrap();
    proxy.set_open(true);
    sees(&far, 0, 2).await;
    // And the watch goes on from there.
    define(&near, 3).await;
    sees(&far, 0, 3).await;
}

/// Changes that came while the connection was down are told of when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_is_taken_up_where_it_broke_off() {
    let etcd = etcd!();
    let proxy = Proxy::start(etcd.endpoint()).await;
    let (far, near) = (registry(&[proxy.endpoint()]).await, etcd.registry().await);
    for round in 0..3 {
        proxy.set_open(false);
        until(&far, |view| !view.reachable).await;
        define(&near, round).await;
        proxy.set_open(true);
        sees(&far, 0, round as usize + 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_was_killed_comes_back() {
    let etcd = etcd!();
    let registry = etcd.registry().await;
    let (member, _) = join_server(&registry, "a:1").await;
    let term = member.campaign(None).await.unwrap().unwrap();
    let leads = |view: &View| view.leader.is_some_and(|leader| leader.term == term);
    until(&registry, leads).await;
    etcd.stop();
    until(&registry, |view| !view.reachable).await;
    etcd.restart().await;
    sees(&registry, 1, 0).await;
    define(&registry, 1).await;
    sees(&registry, 1, 1).await;
}
