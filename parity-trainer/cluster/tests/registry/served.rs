//! Behaviour of a served store alone: the process may be started anew, or be gone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use parapet_cluster::registry::{Address, Joining, MemoryStore, RegistryError, serve_store};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{LIMIT, server, until};

/// A process that serves a new store, until the task is dropped.
async fn serve(address: &str) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let store = Arc::new(MemoryStore::default());
    let serving = tokio::spawn(serve_store(store, listener, std::future::pending()));
    (endpoint, AbortOnDropHandle::new(serving))
}

fn address(endpoint: &str) -> Address {
    format!("parapet://{endpoint}").parse().unwrap()
}

#[tokio::test]
async fn registry_that_is_not_there_is_named_in_one_line() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = address(&endpoint).open().await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    let line = error.to_string();
    assert!(line.contains(&endpoint) && !line.contains('\n'), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_life_of_the_process_is_not_taken_for_the_old_one() {
    let (endpoint, serving) = serve("127.0.0.1:0").await;
    let registry = address(&endpoint).open().await.unwrap();
    let _membership = registry.join(Joining::Server(server("a:1"))).await.unwrap();
    until(&registry, |view| view.servers.values().any(|held| *held == server("a:1"))).await;
    serving.abort();
    let _ = serving.await;
    let view = until(&registry, |view| !view.reachable).await;
    assert_eq!(view.servers.len(), 1, "what was known stays");

    let (_, _serving) = serve(&endpoint).await;
    let refused = timeout(LIMIT, async {
        loop {
            match registry.join(Joining::Coordinator).await {
                Err(error @ RegistryError::Refused { .. }) => return error.to_string(),
                Err(_) => {}
                Ok(_) => panic!("the old life's registry joined the new one"),
            }
        }
    });
    assert!(refused.await.unwrap().contains("started anew"));
    let servers = registry.view().borrow().servers.len();
    assert_eq!(servers, 1, "an empty store is not taken over");
    // A client that begins now is in the new life.
    let later = address(&endpoint).open().await.unwrap();
    assert!(later.view().borrow().servers.is_empty());
}
