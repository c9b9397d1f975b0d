//! Behaviour of a registry that only etcd can cause.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::support;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{
    ArrayInfo, Batch, Entry, EtcdConfig, EtcdStore, Joining, LeaseId, Put, Registry, RegistryError,
    Store, Transaction,
};
use parapet_parameter_server::{ArrayId, KeyRange};
use support::etcd::Etcd;
use support::proxy::Proxy;
use support::{server, until};
use tokio::time::Instant;

#[tokio::test]
async fn an_etcd_that_is_not_there_is_named() {
    // A port that is closed, and one that takes connections and never answers.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for endpoint in [closed, silent.local_addr().unwrap().to_string()] {
        let start = Instant::now();
        let error = EtcdStore::connect(EtcdConfig::new(vec![endpoint.clone()]))
            .await
            .unwrap_err();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
        assert!(
            matches!(error, RegistryError::Unreachable { .. }),
            "{error}"
        );
        let line = error.to_string();
        assert!(
            line.contains(&endpoint) && line.contains("--registry") && !line.contains('\n'),
            "{line}"
        );
    }
}

#[test]
fn addresses() {
    let config = EtcdConfig::parse("etcd://10.0.0.5:2379,10.0.0.6:2379/mnist").unwrap();
    assert_eq!(config.endpoints, ["10.0.0.5:2379", "10.0.0.6:2379"]);
    assert_eq!(config.cluster, "mnist");
    assert_eq!(
        EtcdConfig::parse("etcd://[::1]:2379").unwrap().cluster,
        "default"
    );
    for wrong in [
        "",
        "etcd://",
        "etcd:///x",
        "etcd://host",
        "etcd://host:99999",
        "http://host:1",
        "etcd://host:1/a b",
        "etcd://host:1/",
    ] {
        let error = EtcdConfig::parse(wrong).unwrap_err();
        assert_eq!(
            error,
            RegistryError::Address {
                given: wrong.to_owned()
            }
        );
        assert!(
            error.to_string().contains("etcd://10.0.0.5:2379/mnist"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_in_one_etcd_do_not_see_each_other() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let open = async |cluster: &str| {
        let config = EtcdConfig::parse(&format!("etcd://{}/{cluster}", etcd.endpoint())).unwrap();
        let store = EtcdStore::connect(config).await.unwrap();
        Registry::open(Arc::new(store)).await.unwrap()
    };
    // One name begins with the other.
    let (one, other) = (open("a").await, open("ab").await);
    let _member = other.join(Joining::Server(server("b:1"))).await.unwrap();
    until(&other, "it is seen", |view| view.servers.len() == 1).await;
    let _member = one
        .join(Joining::Worker(parapet_parameter_server::Clock(0)))
        .await
        .unwrap();
    let view = until(&one, "it is seen", |view| view.present_workers.len() == 1).await;
    assert!(view.servers.is_empty());
}

/// A machine that is there, and a process on it that is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_never_answers_is_not_asked_again() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = vec![silent.local_addr().unwrap().to_string(), etcd.endpoint()];
    let store = EtcdStore::connect(EtcdConfig::new(endpoints))
        .await
        .unwrap();
    let registry = Registry::open(Arc::new(store)).await.unwrap();
    let member = registry.join(Joining::Server(server("a:1"))).await.unwrap();
    for array in 0..20 {
        registry
            .define(ArrayId(array), &ArrayInfo::new(KeyRange::new(0, 10), 1))
            .await
            .unwrap();
    }
    until(&registry, "all is seen", |view| {
        view.servers.len() == 1 && view.arrays.len() == 20
    })
    .await;
    member.leave().await.unwrap();
}

fn put(key: &str, lease: Option<LeaseId>) -> Transaction {
    let put = Put {
        key: key.to_owned(),
        value: b"x".to_vec(),
        lease,
    };
    Transaction {
        puts: vec![put],
        ..Transaction::default()
    }
}

/// Waits until followers are told of `key`.
async fn told(batches: &mut tokio::sync::mpsc::Receiver<Batch>, key: &str) {
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
    tokio::time::timeout(support::LIMIT, tell).await.unwrap();
}

/// Waits as long as a lease lasts that is not renewed.
async fn outlive(etcd: &Etcd) {
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let unattended = client.lease_grant(1, None).await.unwrap().id();
    let ends = async {
        while client
            .lease_time_to_live(unattended, None)
            .await
            .unwrap()
            .ttl()
            >= 0
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(support::LIMIT, ends).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_watches_leave_a_member_that_falls_silent() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let proxy = Proxy::start(etcd.endpoint()).await;
    let both = vec![proxy.endpoint(), etcd.endpoint()];
    let far = EtcdStore::connect(EtcdConfig::new(both)).await.unwrap();
    let near = EtcdStore::connect(EtcdConfig::new(vec![etcd.endpoint()]))
        .await
        .unwrap();
    let mut batches = far.follow();
    near.commit(put("before", None)).await.unwrap();
    told(&mut batches, "before").await;

    proxy.fall_silent();
    // The only sign is that the watch leaves by itself: there are no requests.
    near.commit(put("watched", None)).await.unwrap();
    told(&mut batches, "watched").await;
    far.commit(put("asked", None)).await.unwrap();
    told(&mut batches, "asked").await;
}

/// There are no requests meanwhile, so that only the renewal can find out. Two leases that are not
/// renewed end, one after the other; the one that is renewed does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_alone_leaves_a_member_that_falls_silent() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let proxy = Proxy::start(etcd.endpoint()).await;
    let both = vec![proxy.endpoint(), etcd.endpoint()];
    let far = EtcdStore::connect(EtcdConfig::new(both)).await.unwrap();
    let lease = far.grant().await.unwrap();
    far.commit(put("kept", Some(lease.id()))).await.unwrap();
    proxy.fall_silent();
    outlive(&etcd).await;
    outlive(&etcd).await;
    let near = EtcdStore::connect(EtcdConfig::new(vec![etcd.endpoint()]))
        .await
        .unwrap();
    assert!(
        near.get("kept").await.unwrap().is_some(),
        "the lease is renewed by way of the other member"
    );
}

/// The watch cannot be taken up where it broke off: those changes are compacted away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_compaction() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let proxy = Proxy::start(etcd.endpoint()).await;
    let (far, near) = (
        etcd.registry_at(proxy.endpoint()).await,
        etcd.registry().await,
    );
    near.define(ArrayId(1), &ArrayInfo::new(KeyRange::new(0, 10), 1))
        .await
        .unwrap();
    let member = near.join(Joining::Server(server("a:1"))).await.unwrap();
    until(&far, "both are seen", |view| {
        view.servers.len() == 1 && view.arrays.len() == 1
    })
    .await;

    proxy.set_open(false);
    until(&far, "it is known to be away", |view| !view.reachable).await;
    member.leave().await.unwrap();
    near.define(ArrayId(2), &ArrayInfo::new(KeyRange::new(0, 10), 1))
        .await
        .unwrap();
    let mut client = etcd_client::Client::connect([etcd.endpoint()], None)
        .await
        .unwrap();
    let last = client
        .get("x", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .revision();
    client.compact(last, None).await.unwrap();
    proxy.set_open(true);
    until(&far, "all is seen", |view| {
        view.reachable && view.servers.is_empty() && view.arrays.len() == 2
    })
    .await;
    // And the watch goes on from there.
    near.define(ArrayId(3), &ArrayInfo::new(KeyRange::new(0, 10), 1))
        .await
        .unwrap();
    until(&far, "what comes later is seen", |view| {
        view.arrays.len() == 3
    })
    .await;
}

/// Changes that came while the connection was down are told of when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_taken_up_where_it_broke_off() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let proxy = Proxy::start(etcd.endpoint()).await;
    let (far, near) = (
        etcd.registry_at(proxy.endpoint()).await,
        etcd.registry().await,
    );
    for round in 0..3 {
        proxy.set_open(false);
        until(&far, "it is known to be away", |view| !view.reachable).await;
        near.define(ArrayId(round), &ArrayInfo::new(KeyRange::new(0, 10), 1))
            .await
            .unwrap();
        proxy.set_open(true);
        let known = usize::try_from(round).unwrap() + 1;
        until(&far, "the array is seen", |view| {
            view.reachable && view.arrays.len() == known
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_killed_comes_back() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let registry = etcd.registry().await;
    let member = registry.join(Joining::Server(server("a:1"))).await.unwrap();
    let term = member.campaign(None).await.unwrap().unwrap();
    until(&registry, "it leads", |view| {
        view.leader.is_some_and(|leader| leader.term == term)
    })
    .await;
    etcd.stop();
    until(&registry, "it is known to be away", |view| !view.reachable).await;
    etcd.restart().await;
    until(&registry, "the member is there", |view| {
        view.reachable && view.servers.len() == 1
    })
    .await;
    registry
        .define(ArrayId(1), &ArrayInfo::new(KeyRange::new(0, 10), 1))
        .await
        .unwrap();
    until(&registry, "changes are seen", |view| view.arrays.len() == 1).await;
}
