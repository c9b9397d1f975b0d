//! Routing tables and arrays.

use super::*;

pub(super) async fn the_table_changes_by_compare_and_swap(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let leader = one.join(Joining::Coordinator).await.unwrap();
    let term = leader.campaign(None).await.unwrap().unwrap();
    let (two, three) = ([NodeId(1), NodeId(2)], [NodeId(1), NodeId(2), NodeId(3)]);
    let first = one
        .change(term, Revision(0), &table(1, &two), &[])
        .await
        .unwrap();
    assert_eq!(
        one.change(term, Revision(0), &table(2, &three), &[]).await,
        Err(RegistryError::Conflict),
        "it is there by now"
    );
    let second = one
        .change(term, first, &table(2, &three), &[])
        .await
        .unwrap();
    assert!(second > first);
    assert_eq!(
        one.change(term, first, &table(3, &two), &[]).await,
        Err(RegistryError::Conflict)
    );
    let view = until(&other, "the table is seen", |view| {
        view.table.revision == second
    })
    .await;
    assert_eq!(view.table.routing, table(2, &three));
    let mut routing = other.routing();
    let known = timeout(
        support::LIMIT,
        routing.wait_for(|routing| routing.version() == 2),
    )
    .await
    .unwrap();
    assert_eq!(*known.unwrap(), table(2, &three));
}

pub(super) async fn a_table_comes_back_as_it_was_written(fixture: Fixture) {
    let registry = fixture.open().await;
    let leader = registry.join(Joining::Coordinator).await.unwrap();
    let term = leader.campaign(None).await.unwrap().unwrap();
    let routes = (0..2_000u64).map(|i| Route {
        array: ArrayId(u32::try_from(i / 1_000).unwrap()),
        range: KeyRange::new(i << 50, (i + 1) << 50),
        epoch: Epoch(u64::MAX - i),
        chain: (0..=i % 3).map(|n| NodeId(u64::MAX - n)).collect(),
    });
    let routing = Routing::new(u64::MAX, routes.collect()).unwrap();
    let hand_overs: Vec<HandOver> = (0..50)
        .map(|i| HandOver {
            at: shard(i),
            to: NodeId(u64::MAX - i),
        })
        .collect();
    let written = registry
        .change(term, Revision(0), &routing, &hand_overs)
        .await
        .unwrap();
    let view = until(&fixture.open().await, "the table is seen", |v| {
        v.table.revision == written
    })
    .await;
    assert_eq!(view.table.routing, routing);
    assert_eq!(view.table.hand_overs, hand_overs);
}

pub(super) async fn arrays_are_defined_once(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let keys = KeyRange::new(0, u64::MAX);
    let info = |shards| ArrayInfo {
        description: "width 3".into(),
        ..ArrayInfo::new(keys, shards)
    };
    let wanted = info(64);
    let (first, second) = tokio::join!(one.define(ARRAY, &wanted), other.define(ARRAY, &wanted));
    first.and(second).unwrap();
    assert_eq!(
        one.define(ARRAY, &info(65)).await,
        Err(RegistryError::OtherArray { array: ARRAY })
    );
    until(&other, "the array is known", |view| {
        view.arrays.get(&ARRAY) == Some(&info(64))
    })
    .await;
    one.give_up(ARRAY).await.unwrap();
    until(&other, "it is to go", |view| {
        view.arrays.get(&ARRAY) == Some(&info(0))
    })
    .await;
    assert_eq!(
        one.define(ARRAY, &info(64)).await,
        Err(RegistryError::OtherArray { array: ARRAY })
    );
}

pub(super) async fn tables_are_bounded(fixture: Fixture) {
    let registry = fixture.open().await;
    let leader = registry.join(Joining::Coordinator).await.unwrap();
    let term = leader.campaign(None).await.unwrap().unwrap();
    let route = |i: u64| Route {
        array: ARRAY,
        range: KeyRange::new(i, i + 1),
        epoch: Epoch(1),
        chain: vec![NodeId(1), NodeId(2)],
    };
    let large = Routing::new(1, (0..30_000).map(route).collect()).unwrap();
    let refused = registry
        .change(term, Revision(0), &large, &[])
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RegistryError::TooLarge { .. }),
        "{refused}"
    );
    let most = Routing::new(1, (0..10_000).map(route).collect()).unwrap();
    registry
        .change(term, Revision(0), &most, &[])
        .await
        .unwrap();
}
