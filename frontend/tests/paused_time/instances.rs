//! Instances that fail, are ejected, join and leave.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failing_instance_costs_a_retry_and_comes_back_after_its_check() {
    let fixture = plain(2).await;
    fixture.memory.set(id(0, 0), State::Dead);
    let (answered, _) = fixture.ask(1.0).await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "exact");
    let (answered, _) = fixture.ask(1.0).await.unwrap();
    answered.unwrap();
    let asked_of_dead = |fixture: &Fixture| {
        fixture
            .memory
            .log
            .lock()
            .iter()
            .filter(|i| i.index == 0)
            .count()
    };
    assert!(
        asked_of_dead(&fixture) <= 1,
        "no more after the first refusal"
    );
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(Duration::from_secs(1)).await;
    for sample in 0..4u8 {
        fixture.ask(f32::from(sample)).await.unwrap().0.unwrap();
    }
    assert!(asked_of_dead(&fixture) >= 2, "back in service");
}

#[tokio::test(start_paused = true)]
async fn every_instance_down_gives_an_error_in_time_and_recovers() {
    let fixture = coded(2, 1).await;
    for instance in [id(0, 0), id(0, 1), id(1, 0)] {
        fixture.memory.set(instance, State::Dead);
    }
    sleep(Duration::from_secs(2)).await;
    assert!(!fixture.model.driver().is_ready());
    let (answered, took) = fixture.ask(1.0).await.unwrap();
    let error = answered.unwrap_err();
    assert_eq!(error.classify().0.as_u16(), 503, "{error}");
    assert!(took <= Duration::from_secs(1), "CG-1: {took:?}");
    for instance in [id(0, 0), id(0, 1), id(1, 0)] {
        fixture.memory.set(instance, State::Well(SERVICE));
    }
    sleep(Duration::from_secs(1)).await;
    assert!(fixture.model.driver().is_ready());
    assert_eq!(fixture.ask(1.0).await.unwrap().0.unwrap().1.kind, "exact");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_answers_badly_is_ejected_and_let_back_in() {
    let fixture = plain(4).await;
    let bad = id(0, 1);
    fixture.memory.set(bad, State::Broken);
    let asks_it = async |queries: usize| {
        fixture.memory.log.lock().clear();
        for sample in 0..queries {
            fixture.ask(sample as f32).await.unwrap().0.unwrap();
        }
        fixture.memory.log.lock().contains(&bad)
    };
    // Its health checks succeed: only its answers show that it fails.
    asks_it(40).await;
    assert!((fixture.metric("parapet_instances_ejected") - 1.0).abs() < 1e-9);
    assert!(!asks_it(40).await, "it is out");
    sleep(Duration::from_secs(6)).await;
    assert!(asks_it(8).await, "its time is over");
    assert!(!asks_it(40).await, "one more failure was enough");
    fixture.memory.set(bad, State::Well(SERVICE));
    sleep(Duration::from_secs(11)).await;
    assert!(
        asks_it(8).await && asks_it(8).await,
        "it is well, and stays"
    );
    assert!((fixture.metric("parapet_instance_ejections_total") - 2.0).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn at_most_half_of_the_instances_are_ejected() {
    let fixture = plain(4).await;
    for index in 0..3 {
        fixture.memory.set(id(0, index), State::Broken);
    }
    let mut most: f64 = 0.0;
    for sample in 0..200 {
        let _answered = fixture.ask(sample as f32).await.unwrap();
        most = most.max(fixture.metric("parapet_instances_ejected"));
        sleep(100 * MS).await;
    }
    assert!((most - 2.0).abs() < 1e-9, "{most}");
}

#[tokio::test(start_paused = true)]
async fn where_all_instances_fail_none_is_ejected() {
    let fixture = plain(4).await;
    for index in 0..4 {
        fixture.memory.set(id(0, index), State::Broken);
    }
    for sample in 0..100 {
        assert!(fixture.ask(sample as f32).await.unwrap().0.is_err());
    }
    assert!(
        fixture.metric("parapet_instances_ejected") < 1e-9,
        "the model or the inputs are at fault"
    );
}

#[tokio::test(start_paused = true)]
async fn instances_join_and_leave_while_requests_are_served() {
    let fixture = discovered().await;
    let of = |ports: &[u16]| {
        ports
            .iter()
            .flat_map(|&port| addresses(1, port))
            .collect::<Addresses>()
    };
    let (says, backend) = Discovery::new(of(&[7000]));
    fixture.model.follow(PoolId::DEPLOYED, backend);
    assert!(!fixture.model.driver().is_ready());
    sleep(10 * MS).await;
    assert!(fixture.model.driver().is_ready(), "found, and found well");
    fixture.ask(1.0).await.unwrap().0.unwrap();

    // The first one leaves with a request in hand, and the second one takes its place.
    fixture.memory.set(id(0, 0), State::Well(100 * MS));
    let slow = fixture.ask(2.0);
    sleep(MS).await;
    says.send(Ok(of(&[7001]))).unwrap();
    sleep(10 * MS).await;
    assert!(
        fixture.memory.gone.lock().is_empty(),
        "it has a request in hand"
    );
    let (answered, took) = fixture.ask(3.0).await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "exact");
    assert!(took < SERVICE + 2 * MS, "{took:?}");
    let (answered, took) = slow.await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "exact");
    assert!(took >= 100 * MS, "it finished what it had: {took:?}");
    sleep(MS).await;
    assert_eq!(*fixture.memory.gone.lock(), [id(0, 0)]);
    let text = fixture.metrics.render();
    assert!(
        text.contains("address=\"127.0.0.1:7001\"} 1") && !text.contains("127.0.0.1:7000"),
        "{text}"
    );

    // Neither an outage of the backend nor an empty answer takes an instance away.
    let up = r#"parapet_discovery_up{model="linear",pool="deployed"}"#;
    for outage in [Err("gone".to_owned()), Ok(Addresses::new())] {
        assert!((fixture.metric(up) - 1.0).abs() < 1e-9);
        says.send(outage).unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(fixture.metric(up) < 0.5);
        assert_eq!(fixture.ask(4.0).await.unwrap().0.unwrap().1.kind, "exact");
        says.send(Ok(of(&[7001]))).unwrap();
        sleep(Duration::from_secs(60)).await;
    }
    fixture.model.driver().stop();
    sleep(Duration::from_secs(60)).await;
    assert!(
        says.is_closed(),
        "nobody follows a backend of a model that is served no more"
    );
}
