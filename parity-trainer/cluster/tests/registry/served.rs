//! Behaviour of a served store alone: the process may be started anew, or be gone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{
    Address, Joining, MemoryStore, RegistryError, ServeConfig, ServerInfo, serve_store,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(100);

/// A process that serves, until the sender is used or dropped.
async fn serve(address: &str) -> (String, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let stop = async {
            let _ = stopped.await;
        };
        serve_store(
            Arc::new(MemoryStore::new()),
            listener,
            ServeConfig::default(),
            stop,
        )
        .await
        .unwrap();
    });
    (endpoint, stop, serving)
}

fn info() -> ServerInfo {
    ServerInfo {
        address: "a:1".into(),
        control: "a:2".into(),
        weight: 2,
    }
}

#[tokio::test]
async fn nobody_there_is_a_clear_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap();
    drop(listener);
    let address: Address = format!("parapet://{endpoint}").parse().unwrap();
    let error = address.open().await.unwrap_err();
    assert!(
        matches!(error, RegistryError::Unreachable { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains(&endpoint.to_string()) && !error.to_string().contains('\n'),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_life_of_the_process_is_not_taken_for_the_old_one() {
    let (endpoint, stop, serving) = serve("127.0.0.1:0").await;
    let address: Address = format!("parapet://{endpoint}").parse().unwrap();
    let registry = address.open().await.unwrap();
    let membership = registry.join(Joining::Server(info())).await.unwrap();
    let mut views = registry.view();
    timeout(
        LIMIT,
        views.wait_for(|view| view.servers.values().any(|server| *server == info())),
    )
    .await
    .unwrap()
    .unwrap();
    stop.send(()).unwrap();
    serving.await.unwrap();
    timeout(LIMIT, views.wait_for(|view| !view.reachable))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(views.borrow().servers.len(), 1, "what was known stays");

    let (_, _stop, _serving) = serve(&endpoint).await;
    let refused = timeout(LIMIT, async {
        loop {
            match registry.join(Joining::Coordinator).await {
                Err(error @ RegistryError::Refused { .. }) => return error,
                Err(_) => {}
                Ok(_) => panic!("the old life's registry joined the new one"),
            }
        }
    });
    assert!(refused.await.unwrap().to_string().contains("started anew"));
    assert_eq!(
        views.borrow().servers.len(),
        1,
        "an empty store is not taken over"
    );
    // A client that begins now is in the new life.
    let later = address.open().await.unwrap();
    assert!(later.view().borrow().servers.is_empty());
    drop(membership);
}
