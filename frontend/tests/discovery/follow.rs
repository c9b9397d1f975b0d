//! Addresses that are kept when a backend is lost, in paused time.

use std::time::Duration;

use parapet_frontend::discovery::{Addresses, Memory, follow};

use super::{addresses, until};

#[tokio::test(start_paused = true)]
async fn the_last_known_instances_outlive_their_backend() {
    let both = addresses(&["10.0.0.1:9001", "10.0.0.2:9001"]);
    let (says, backend) = Memory::new(both.clone());
    let mut view = follow(backend, "test".to_owned());
    until(&mut view, "found", |view| {
        view.is_current && view.addresses == both
    })
    .await;

    for outage in [Err("gone".to_owned()), Ok(Addresses::new())] {
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
    until(&mut view, "smaller", |view| view.addresses == one).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_at_the_start_is_waited_out_and_pauses_are_bounded() {
    let (says, backend) = Memory::new(Addresses::new());
    says.send(Err("not there yet".to_owned())).unwrap();
    let mut view = follow(backend, "test".to_owned());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!view.borrow().is_current && view.borrow().addresses.is_empty());
    says.send(Ok(addresses(&["10.0.0.1:9001"]))).unwrap();
    let asked = tokio::time::Instant::now();
    until(&mut view, "found", |view| view.is_current).await;
    assert!(
        asked.elapsed() <= Duration::from_secs(10),
        "asked again within the longest pause"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_for_what_nobody_wants_to_know() {
    let (says, backend) = Memory::new(addresses(&["10.0.0.1:9001"]));
    let mut view = follow(backend, "test".to_owned());
    until(&mut view, "found", |view| view.is_current).await;
    drop(view);
    says.closed().await;
}
