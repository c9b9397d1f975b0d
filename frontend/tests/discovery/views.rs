//! Addresses that are kept when a backend is lost, in paused time.

use std::time::Duration;

use parapet_frontend::discovery::{Addresses, follow};

use super::{addresses, until, until_found};

#[path = "../support/backend.rs"]
mod backend;

use backend::memory;

#[tokio::test(start_paused = true)]
async fn the_last_known_instances_outlive_their_backend() {
    let both = addresses(&["10.0.0.1:9001", "10.0.0.2:9001"]);
    let (says, backend) = memory(Ok(both.clone()));
    let mut view = follow(backend, "test".to_owned());
    until_found(&mut view, &both).await;

    for outage in [Err("gone".to_owned()), Ok(Addresses::default())] {
        says.send(outage).unwrap();
        until(&mut view, "lost", |view| !view.is_current).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(view.borrow().addresses, both, "kept for an hour");

        says.send(Ok(both.clone())).unwrap();
        until(&mut view, "found again", |view| view.is_current).await;
        assert_eq!(view.borrow().addresses, both);
    }

    let one = addresses(&["10.0.0.2:9001"]);
    says.send(Ok(one.clone())).unwrap();
    until_found(&mut view, &one).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_at_the_start_is_waited_out_and_pauses_are_bounded() {
    let (says, backend) = memory(Err("not there yet".to_owned()));
    let mut view = follow(backend, "test".to_owned());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!view.borrow().is_current && view.borrow().addresses.is_empty());
    says.send(Ok(addresses(&["10.0.0.1:9001"]))).unwrap();
    let asked = tokio::time::Instant::now();
    until(&mut view, "found", |view| view.is_current).await;
    let took = asked.elapsed();
    // Asked again within the longest pause.
    assert!(took <= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_backend_without_a_receiver_is_asked_no_more() {
    let (says, backend) = memory(Ok(addresses(&["10.0.0.1:9001"])));
    let mut view = follow(backend, "test".to_owned());
    until(&mut view, "found", |view| view.is_current).await;
    drop(view);
    says.closed().await;
}
