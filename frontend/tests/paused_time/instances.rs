//! Instances that fail, are ejected, join and leave.

use parapet_frontend::discovery::{Addresses, follow};
use parapet_frontend_core::PoolId;

use super::*;
use crate::support::addresses;
use crate::support::backend::memory;

#[tokio::test(start_paused = true)]
async fn a_failing_instance_costs_a_retry_and_comes_back_after_its_check() {
    let fixture = plain(2).await;
    fixture.memory.set(id(0, 0), State::Dead);
    assert_eq!(fixture.kind(1.0).await.0, "exact");
    fixture.kind(1.0).await;
    let asked_of_dead = || {
        let log = fixture.memory.log.lock();
        log.iter().filter(|instance| instance.index == 0).count()
    };
    assert!(asked_of_dead() <= 1, "no more after the first refusal");
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(SECOND).await;
    for sample in 0..4u8 {
        fixture.kind(f32::from(sample)).await;
    }
    assert!(asked_of_dead() >= 2, "back in service");
}

#[tokio::test(start_paused = true)]
async fn every_instance_down_gives_an_error_in_time_and_recovers() {
    let fixture = coded(2, 1).await;
    let all = [(0, 0), (0, 1), (1, 0)];
    fixture.set_all(all, State::Dead);
    sleep(2 * SECOND).await;
    assert!(!fixture.model.driver.is_ready());
    let (answered, took) = fixture.ask(1.0).await.unwrap();
    let error = answered.unwrap_err();
    assert_eq!(error.classify().0.as_u16(), 503, "{error}");
    assert!(took <= SECOND, "CG-1: {took:?}");
    fixture.set_all(all, State::Well(SERVICE));
    sleep(SECOND).await;
    assert!(fixture.model.driver.is_ready());
    assert_eq!(fixture.kind(1.0).await.0, "exact");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_answers_badly_is_ejected_and_let_back_in() {
    let fixture = plain(4).await;
    let bad = id(0, 1);
    fixture.memory.set(bad, State::Broken);
    let asks_it = async |queries: usize| {
        fixture.memory.log.lock().clear();
        for sample in 0..queries {
            fixture.kind(sample as f32).await;
        }
        fixture.memory.log.lock().contains(&bad)
    };
    // Its health checks succeed: only its answers show that it fails.
    asks_it(40).await;
    assert_eq!(fixture.metric("parapet_instances_ejected"), 1.0);
    assert!(!asks_it(40).await, "it is out");
    sleep(6 * SECOND).await;
    assert!(asks_it(8).await, "its time is over");
    assert!(!asks_it(40).await, "one more failure was enough");
    fixture.memory.set(bad, State::Well(SERVICE));
    sleep(11 * SECOND).await;
    // It is well, and stays.
    assert!(asks_it(8).await && asks_it(8).await);
    assert_eq!(fixture.metric("parapet_instance_ejections_total"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn at_most_half_of_the_instances_are_ejected() {
    let fixture = plain(4).await;
    fixture.set_all([(0, 0), (0, 1), (0, 2)], State::Broken);
    let mut most: f64 = 0.0;
    for sample in 0..200 {
        let _answered = fixture.ask(sample as f32).await.unwrap();
        most = most.max(fixture.metric("parapet_instances_ejected"));
        sleep(100 * MS).await;
    }
    assert_eq!(most, 2.0);
}

#[tokio::test(start_paused = true)]
async fn where_all_instances_fail_none_is_ejected() {
    let fixture = plain(4).await;
    fixture.set_all((0..4).map(|index| (0, index)), State::Broken);
    for sample in 0..100 {
        assert!(fixture.ask(sample as f32).await.unwrap().0.is_err());
    }
    let ejected = fixture.metric("parapet_instances_ejected");
    assert_eq!(ejected, 0.0, "the model or the inputs are at fault");
}

#[tokio::test(start_paused = true)]
async fn instances_join_and_leave_while_requests_are_served() {
    let fixture = discovered().await;
    let of = |port: u16| addresses(1, port).into_iter().map(Into::into).collect::<Addresses>();
    let (says, backend) = memory(Ok(Addresses::default()));
    let view = follow(backend, "test".to_owned());
    fixture.model.keep_up(PoolId::DEPLOYED, view);
    assert!(!fixture.model.driver.is_ready());
    says.send(Ok(of(7000))).unwrap();
    sleep(10 * MS).await;
    assert!(fixture.model.driver.is_ready(), "found, and found well");
    fixture.kind(1.0).await;

    // The first one leaves with a request in hand, and the second one takes its place.
    fixture.memory.set(id(0, 0), State::Well(100 * MS));
    let slow = fixture.ask(2.0);
    sleep(MS).await;
    says.send(Ok(of(7001))).unwrap();
    sleep(10 * MS).await;
    // It has a request in hand.
    assert!(fixture.memory.gone.lock().is_empty());
    let (kind, took) = fixture.kind(3.0).await;
    assert_eq!(kind, "exact");
    assert!(took < SERVICE + 2 * MS, "{took:?}");
    let (answered, took) = slow.await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "exact");
    assert!(took >= 100 * MS, "it finished what it had: {took:?}");
    sleep(MS).await;
    assert_eq!(*fixture.memory.gone.lock(), [id(0, 0)]);
    let text = fixture.metrics.render();
    let replaced = text.contains("address=\"127.0.0.1:7001\"} 1");
    assert!(replaced && !text.contains("127.0.0.1:7000"), "{text}");

    // Neither an outage of the backend nor an empty answer takes an instance away.
    let up = r#"parapet_discovery_up{model="linear",pool="deployed"}"#;
    for outage in [Err("gone".to_owned()), Ok(Addresses::default())] {
        assert_eq!(fixture.metric(up), 1.0);
        says.send(outage).unwrap();
        sleep(60 * SECOND).await;
        assert_eq!(fixture.metric(up), 0.0);
        assert_eq!(fixture.kind(4.0).await.0, "exact");
        says.send(Ok(of(7001))).unwrap();
        sleep(60 * SECOND).await;
    }
    fixture.model.driver.stop();
    sleep(60 * SECOND).await;
    // The backend of a model that is served no more is not followed.
    assert!(says.is_closed());
}
