//! Reports.

use super::*;

pub(super) async fn reports_stand_until_they_are_retracted(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (a, node) = join_server(&one, "a:1").await;
    let (_b, suspect) = join_server(&other, "b:1").await;
    let hand_over = HandOver {
        at: shard(4),
        to: NodeId(90),
    };
    for report in [
        Report::Suspect(suspect),
        Report::Propose(hand_over),
        Report::Lost(shard(5)),
    ] {
        a.report(report).unwrap();
        a.report(report).unwrap();
    }
    let view = until(&other, "all are seen", |view| view.reports.len() == 3).await;
    let cluster = view.cluster();
    assert!(
        cluster
            .suspicions
            .contains(&(a.id().peer().unwrap(), suspect))
    );
    assert!(cluster.proposals.contains(&hand_over) && cluster.lost.contains(&(node, shard(5))));

    a.retract(Report::Suspect(suspect));
    until(&other, "two are seen", |view| view.reports.len() == 2).await;
    // They belong to one life.
    a.leave().await.unwrap();
    until(&other, "none is seen", |view| view.reports.is_empty()).await;
}

pub(super) async fn reports_about_what_is_over_go_by_themselves(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, node) = join_server(&registry, "a:1").await;
    let (b, suspect) = join_server(&registry, "b:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    let first = registry
        .change(term, Revision(0), &table(1, &[node]), &[])
        .await
        .unwrap();
    a.report(Report::Suspect(suspect)).unwrap();
    a.report(Report::Propose(HandOver {
        at: shard(1),
        to: suspect,
    }))
    .unwrap();
    a.report(Report::Lost(shard(1))).unwrap();
    until(&registry, "all are seen", |view| view.reports.len() == 3).await;

    registry
        .change(term, first, &table(2, &[node]), &[])
        .await
        .unwrap();
    let view = until(&registry, "one is left", |view| view.reports.len() == 1).await;
    assert_eq!(
        view.reports.values().next(),
        Some(&(a.id(), Report::Suspect(suspect)))
    );
    b.leave().await.unwrap();
    until(&registry, "none is left", |view| view.reports.is_empty()).await;
}

pub(super) async fn reports_are_bounded(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, _) = join_server(&registry, "a:1").await;
    let limit = parapet_cluster::registry::MAX_REPORTS;
    for epoch in 0..limit as u64 {
        let range = KeyRange::new(epoch, epoch + 1);
        a.report(Report::Lost(ShardRef { range, ..shard(1) }))
            .unwrap();
    }
    let one_more = Report::Suspect(NodeId(1));
    assert_eq!(
        a.report(one_more),
        Err(RegistryError::TooManyReports { limit })
    );
    until(&registry, "all are seen", |view| {
        view.reports.len() == limit
    })
    .await;
    a.retract(Report::Lost(ShardRef {
        range: KeyRange::new(0, 1),
        ..shard(1)
    }));
    a.report(one_more).unwrap();
}
