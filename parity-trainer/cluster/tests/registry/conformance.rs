//! Requirements of a registry on its store, tested with each of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use parapet_cluster::registry::{
    ArrayInfo, Joining, Leader, MAX_REPORTS, Member, Membership, Registry, RegistryError, Report,
    Revision, Term, View,
};
use parapet_parameter_server::{
    ArrayId, Clock, Epoch, HandOver, KeyRange, LoadPlan, NodeId, Route, Routing, ShardRef, WorkerId,
};
use tokio::time::Instant;

use crate::conformance;
use crate::support::{ARRAY, Fixture, join_server, route, server, table, until};

conformance!(
    member_is_seen_until_it_leaves,
    dropped_member_is_gone_soon,
    numbers_are_never_given_twice,
    one_member_leads,
    table_changes_by_compare_and_swap,
    table_reads_back_as_written,
    array_is_defined_once,
    executors_are_listed_until_they_are_dropped,
    job_is_seen_until_it_is_done,
    reports_stand_until_they_are_retracted,
    outdated_reports_go_by_themselves,
    reports_are_bounded,
    tables_are_bounded,
    outage_leaves_the_last_view,
    membership_survives_its_lease,
    leadership_does_not_survive_its_lease,
);

async fn join_host(registry: &Registry) -> (Membership, WorkerId) {
    let membership = registry.join(Joining::Host).await.unwrap();
    let Member::Worker(worker) = membership.id() else { panic!("{:?}", membership.id()) };
    (membership, worker)
}

async fn lead(registry: &Registry) -> (Membership, Term) {
    let leader = registry.join(Joining::Coordinator).await.unwrap();
    let term = leader.campaign(None).await.unwrap().unwrap();
    (leader, term)
}

/// Writes a table without hand-overs.
async fn change(
    registry: &Registry,
    term: Term,
    base: Revision,
    table: &Routing,
) -> Result<Revision, RegistryError> {
    registry.change(term, base, table, &[], &LoadPlan::default()).await
}

/// Writes the first table.
async fn write(registry: &Registry, term: Term, table: &Routing) -> Revision {
    change(registry, term, Revision(0), table).await.unwrap()
}

fn shard(epoch: u64) -> ShardRef {
    shard_of(0, 100, epoch)
}

fn shard_of(start: u64, end: u64, epoch: u64) -> ShardRef {
    let (array, range, epoch) = (ARRAY, KeyRange::new(start, end), Epoch(epoch));
    ShardRef { array, range, epoch }
}

fn hand_over(epoch: u64, to: NodeId) -> HandOver {
    let at = shard(epoch);
    HandOver { at, to }
}

async fn member_is_seen_until_it_leaves(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (membership, node) = join_server(&one, "a:1").await;
    let view = until(&other, |view| view.servers.contains_key(&node)).await;
    assert_eq!(view.servers[&node], server("a:1"));
    let mut emptied = server("a:1");
    emptied.weight = 0;
    membership.update(&emptied).unwrap();
    until(&other, |view| view.servers[&node].weight == 0).await;
    membership.leave().await.unwrap();
    until(&other, |view| view.servers.is_empty()).await;
}

async fn dropped_member_is_gone_soon(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (membership, node) = join_server(&one, "a:1").await;
    let (_worker, worker) = join_host(&one).await;
    let both =
        |view: &View| view.servers.contains_key(&node) && view.present_workers.contains(&worker);
    until(&other, both).await;
    drop(membership);
    let start = Instant::now();
    let view = until(&other, |view| view.servers.is_empty()).await;
    fixture.assert_within(Duration::from_secs(5), start);
    assert!(view.present_workers.contains(&worker), "the other one stays");
}

async fn numbers_are_never_given_twice(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let joins = (0..12).map(|i| {
        let registry = if i % 2 == 0 { &one } else { &other };
        async move {
            match i % 3 {
                0 => join_server(registry, "a:1").await.0,
                1 => join_host(registry).await.0,
                _ => registry.join(Joining::Coordinator).await.unwrap(),
            }
        }
    });
    let memberships = join_all(joins).await;
    let number = |membership: &Membership| match membership.id() {
        Member::Server(NodeId(n)) | Member::Worker(WorkerId(n)) | Member::Coordinator(n) => n,
    };
    let numbers: BTreeSet<u64> = memberships.iter().map(number).collect();
    assert_eq!(numbers.len(), 12);
    until(&one, |view| view.present_workers.len() == 4).await;
    for membership in memberships {
        membership.leave().await.unwrap();
    }
    let (late, _) = join_server(&other, "a:1").await;
    assert!(!numbers.contains(&number(&late)), "a new life under an old number");
}

async fn one_member_leads(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let a = one.join(Joining::Coordinator).await.unwrap();
    let b = other.join(Joining::Coordinator).await.unwrap();
    let (first, second) = tokio::join!(a.campaign(None), b.campaign(None));
    let (winner, loser, term) = match (first.unwrap(), second.unwrap()) {
        (Some(term), None) => (a, b, term),
        (None, Some(term)) => (b, a, term),
        both => panic!("{both:?}"),
    };
    let member = winner.id();
    let view = until(&one, |view| view.leader.is_some()).await;
    assert_eq!(view.leader, Some(Leader { term, member }));
    let never = Term(Revision(term.0.0 + 1_000));
    for instead in [None, Some(never)] {
        assert_eq!(loser.campaign(instead).await.unwrap(), None);
    }

    // Deposed: what the old leader writes is refused from then on.
    let later = loser.campaign(Some(term)).await.unwrap().unwrap();
    assert!(later > term);
    let first = table(1, &[NodeId(1)]);
    let refused = change(&one, term, Revision(0), &first).await;
    assert_eq!(refused, Err(RegistryError::Deposed));
    change(&one, later, Revision(0), &first).await.unwrap();

    loser.leave().await.unwrap();
    until(&one, |view| view.leader.is_none()).await;
    assert!(winner.campaign(None).await.unwrap().unwrap() > later);
}

async fn table_changes_by_compare_and_swap(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (_leader, term) = lead(&one).await;
    let nodes = [NodeId(1), NodeId(2), NodeId(3)];
    let (two, three) = (table(1, &nodes[..2]), table(2, &nodes));
    let first = write(&one, term, &two).await;
    let conflict = Err(RegistryError::Conflict);
    assert_eq!(change(&one, term, Revision(0), &three).await, conflict);
    let second = change(&one, term, first, &three).await.unwrap();
    assert!(second > first);
    let late = table(3, &nodes[..2]);
    assert_eq!(change(&one, term, first, &late).await, conflict);
    let view = until(&other, |view| view.table.revision == second).await;
    assert_eq!(view.table.routing, three);
}

async fn table_reads_back_as_written(fixture: Fixture) {
    let registry = fixture.open().await;
    let (_leader, term) = lead(&registry).await;
    let routes = (0..2_000u64).map(|i| Route {
        array: ArrayId(u32::try_from(i / 1_000).unwrap()),
        range: KeyRange::new(i << 50, (i + 1) << 50),
        epoch: Epoch(u64::MAX - i),
        chain: (0..=i % 3).map(|n| NodeId(u64::MAX - n)).collect(),
    });
    let routing = Routing::new(u64::MAX, routes.collect()).unwrap();
    let hand_overs: Vec<_> = (0..50).map(|i| hand_over(i, NodeId(u64::MAX - i))).collect();
    let plan = LoadPlan::default();
    let written = registry.change(term, Revision(0), &routing, &hand_overs, &plan);
    let written = written.await.unwrap();
    let other = fixture.open().await;
    let view = until(&other, |view| view.table.revision == written).await;
    assert_eq!((&view.table.routing, &view.table.hand_overs), (&routing, &hand_overs));
}

async fn array_is_defined_once(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let info = |shards| ArrayInfo {
        keys: KeyRange::new(0, u64::MAX),
        shards: KeyRange::new(0, u64::MAX).cut(shards).collect(),
        description: "width 3".into(),
    };
    let wanted = info(64);
    let (first, second) = tokio::join!(one.define(ARRAY, &wanted), other.define(ARRAY, &wanted));
    first.and(second).unwrap();
    let taken = Err(RegistryError::OtherArray(ARRAY));
    assert_eq!(one.define(ARRAY, &info(65)).await, taken);
    until(&other, |view| view.arrays.get(&ARRAY) == Some(&info(64))).await;
    one.give_up(ARRAY).await.unwrap();
    until(&other, |view| view.arrays.get(&ARRAY) == Some(&info(0))).await;
    assert_eq!(one.define(ARRAY, &info(64)).await, taken, "its number is used up");
}

async fn executors_are_listed_until_they_are_dropped(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let added = (one.add_executors(3, Clock(4)), other.add_executors(2, Clock(4)));
    let (first, second) = tokio::join!(added.0, added.1);
    let (first, second) = (first.unwrap(), second.unwrap());
    let host = one.join(Joining::Host).await.unwrap();
    let all = |view: &View| view.workers.workers.len() == 5 && view.present_workers.len() == 1;
    let view = until(&other, all).await;
    let listed: BTreeSet<WorkerId> = view.workers.listed().collect();
    assert_eq!(listed, first.iter().chain(&second).copied().collect());
    assert_eq!((view.workers.version, view.workers.workers[0].1), (2, Clock(4)));
    drop(host);
    for _ in 0..2 {
        one.drop_executors(&first).await.unwrap();
    }
    let view = until(&other, |view| view.workers.workers.len() == 2).await;
    assert_eq!(view.workers.version, 3, "nothing to drop, nothing changed");
    assert_eq!(view.workers.listed().collect::<Vec<_>>(), second);
}

async fn job_is_seen_until_it_is_done(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    one.set_job(Some("learn")).await.unwrap();
    until(&other, |view| view.job.as_deref() == Some("learn")).await;
    one.set_job(None).await.unwrap();
    until(&other, |view| view.job.is_none()).await;
}

async fn reports_stand_until_they_are_retracted(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (a, node) = join_server(&one, "a:1").await;
    let (_b, suspect) = join_server(&other, "b:1").await;
    let hand_over = hand_over(4, NodeId(90));
    let reports = [Report::Suspect(suspect), Report::Propose(hand_over), Report::Lost(shard(5))];
    for report in reports {
        a.report(report).unwrap();
        a.report(report).unwrap();
    }
    let view = until(&other, |view| view.reports.len() == 3).await;
    let cluster = view.cluster();
    let suspicion = (a.id().peer().unwrap(), suspect);
    assert!(cluster.suspicions.contains(&suspicion));
    assert!(cluster.proposals.contains(&hand_over) && cluster.lost.contains(&(node, shard(5))));

    a.retract(Report::Suspect(suspect));
    until(&other, |view| view.reports.len() == 2).await;
    // They belong to one life.
    a.leave().await.unwrap();
    until(&other, |view| view.reports.is_empty()).await;
}

async fn outdated_reports_go_by_themselves(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, node) = join_server(&registry, "a:1").await;
    let (b, suspect) = join_server(&registry, "b:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    let first = write(&registry, term, &table(1, &[node])).await;
    a.report(Report::Suspect(suspect)).unwrap();
    a.report(Report::Propose(hand_over(1, suspect))).unwrap();
    a.report(Report::Lost(shard(1))).unwrap();
    until(&registry, |view| view.reports.len() == 3).await;

    let second = table(2, &[node]);
    change(&registry, term, first, &second).await.unwrap();
    let view = until(&registry, |view| view.reports.len() == 1).await;
    let left = view.reports.values().next();
    assert_eq!(left, Some(&(a.id(), Report::Suspect(suspect))));
    b.leave().await.unwrap();
    until(&registry, |view| view.reports.is_empty()).await;
}

async fn reports_are_bounded(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, _) = join_server(&registry, "a:1").await;
    let limit = MAX_REPORTS;
    let lost = |start| Report::Lost(shard_of(start, start + 1, 1));
    for start in 0..limit as u64 {
        a.report(lost(start)).unwrap();
    }
    let one_more = Report::Suspect(NodeId(1));
    let refused = Err(RegistryError::TooManyReports { limit });
    assert_eq!(a.report(one_more), refused);
    until(&registry, |view| view.reports.len() == limit).await;
    a.retract(lost(0));
    a.report(one_more).unwrap();
}

async fn tables_are_bounded(fixture: Fixture) {
    let registry = fixture.open().await;
    let (_leader, term) = lead(&registry).await;
    let chain = [NodeId(1), NodeId(2)];
    let routing = |routes: u64| {
        let routes = (0..routes).map(|i| route(i, i + 1, 1, &chain));
        Routing::new(1, routes.collect()).unwrap()
    };
    let refused = change(&registry, term, Revision(0), &routing(30_000)).await;
    assert!(matches!(refused, Err(RegistryError::TooLarge { .. })), "{refused:?}");
    write(&registry, term, &routing(10_000)).await;
}

async fn outage_leaves_the_last_view(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, node) = join_server(&registry, "a:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    let written = table(1, &[node]);
    let before = write(&registry, term, &written).await;
    until(&registry, |view| view.table.revision == before).await;

    fixture.set_reachable(false);
    let start = Instant::now();
    let second = table(2, &[node]);
    let error = change(&registry, term, before, &second).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    assert!(error.is_retryable());
    fixture.assert_within(Duration::from_secs(4), start);
    let view = until(&registry, |view| !view.reachable).await;
    assert_eq!(view.table.routing, written, "the table stays");
    // What is reported meanwhile is written later. The change of the table may happen then, too:
    // the report must be about what is so under either table.
    let lost = Report::Lost(shard(9));
    a.report(lost).unwrap();
    fixture.set_reachable(true);
    let back =
        |view: &View| view.reachable && view.reports.values().any(|(_, report)| *report == lost);
    until(&registry, back).await;
    until(&fixture.open().await, back).await;
}

async fn membership_survives_its_lease(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (a, node) = join_server(&one, "a:1").await;
    let (_w, worker) = join_host(&one).await;
    let is_whole = |view: &View, reports| {
        view.reachable
            && view.servers.get(&node) == Some(&server("a:1"))
            && view.present_workers.contains(&worker)
            && view.reports.len() == reports
    };
    a.report(Report::Lost(shard(3))).unwrap();
    until(&other, |view| is_whole(view, 1)).await;
    fixture.suspend_for_long().await;
    a.report(Report::Lost(shard_of(200, 300, 1))).unwrap();
    until(&other, |view| is_whole(view, 2)).await;
    until(&fixture.open().await, |view| is_whole(view, 2)).await;
}

async fn leadership_does_not_survive_its_lease(fixture: Fixture) {
    let (one, other) = fixture.open_two().await;
    let (a, node) = join_server(&one, "a:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    until(&other, |view| view.leader.is_some()).await;
    drop(a);
    let gone = |view: &View| view.leader.is_none() && view.servers.is_empty();
    until(&other, gone).await;
    let refused = change(&one, term, Revision(0), &table(1, &[node])).await;
    assert_eq!(refused, Err(RegistryError::Deposed));
    let (b, _) = join_server(&other, "b:1").await;
    assert!(b.campaign(None).await.unwrap().unwrap() > term);
}
