//! Requirements of a registry on its store, tested with each of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod reports;
mod tables;

use crate::{conformance, support};

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use parapet_cluster::registry::{
    ArrayInfo, Joining, Leader, Member, Membership, Registry, RegistryError, Report, Revision, Term,
};
use parapet_parameter_server::{
    ArrayId, Clock, Epoch, HandOver, KeyRange, NodeId, Route, Routing, ShardRef, WorkerId,
};
use reports::*;
use support::{Fixture, server, until};
use tables::*;
use tokio::time::{Instant, timeout};

const ARRAY: ArrayId = ArrayId(7);

conformance!(
    members_are_seen_until_they_leave,
    a_member_that_is_dropped_is_gone_soon,
    numbers_are_never_given_twice,
    workers_are_listed_with_their_clocks,
    one_leads,
    the_table_changes_by_compare_and_swap,
    a_table_comes_back_as_it_was_written,
    arrays_are_defined_once,
    executors_are_listed_until_they_are_taken_off,
    a_job_is_seen_until_it_is_done,
    reports_stand_until_they_are_retracted,
    reports_about_what_is_over_go_by_themselves,
    reports_are_bounded,
    tables_are_bounded,
    an_outage_leaves_what_is_known,
    a_membership_survives_its_lease,
    a_leadership_does_not_survive_its_lease,
);

async fn join_server(registry: &Registry, address: &str) -> (Membership, NodeId) {
    let membership = registry
        .join(Joining::Server(server(address)))
        .await
        .unwrap();
    let Member::Server(node) = membership.id() else {
        panic!("{:?}", membership.id())
    };
    (membership, node)
}

async fn join_worker(registry: &Registry, clock: u64) -> (Membership, WorkerId) {
    let membership = registry.join(Joining::Worker(Clock(clock))).await.unwrap();
    let Member::Worker(worker) = membership.id() else {
        panic!("{:?}", membership.id())
    };
    (membership, worker)
}

fn table(version: u64, chain: &[NodeId]) -> Routing {
    let range = KeyRange::new(0, 100);
    Routing::new(
        version,
        vec![Route {
            array: ARRAY,
            range,
            epoch: Epoch(version),
            chain: chain.to_vec(),
        }],
    )
    .unwrap()
}

fn shard(epoch: u64) -> ShardRef {
    ShardRef {
        array: ARRAY,
        range: KeyRange::new(0, 100),
        epoch: Epoch(epoch),
    }
}

async fn members_are_seen_until_they_leave(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (membership, node) = join_server(&one, "10.0.0.1:7000").await;
    let view = until(&other, "the server is seen", |view| {
        view.servers.contains_key(&node)
    })
    .await;
    assert_eq!(view.servers[&node], server("10.0.0.1:7000"));

    let emptied = parapet_cluster::registry::ServerInfo {
        weight: 0,
        ..server("10.0.0.1:7000")
    };
    membership.update(&emptied).unwrap();
    until(&other, "the weight is seen", |view| {
        view.servers[&node].weight == 0
    })
    .await;

    membership.leave().await.unwrap();
    until(&other, "the server is gone", |view| view.servers.is_empty()).await;
}

async fn a_member_that_is_dropped_is_gone_soon(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (membership, node) = join_server(&one, "a:1").await;
    let (_worker, worker) = join_worker(&one, 3).await;
    until(&other, "both are seen", |view| {
        view.servers.contains_key(&node) && view.present_workers.contains(&worker)
    })
    .await;
    drop(membership);
    let start = Instant::now();
    let view = until(&other, "the server is gone", |view| view.servers.is_empty()).await;
    fixture.assert_within(Duration::from_secs(5), start);
    assert!(
        view.present_workers.contains(&worker),
        "the other one stays"
    );
}

async fn numbers_are_never_given_twice(fixture: Fixture) {
    let registries = [fixture.open().await, fixture.open().await];
    let joins = (0..12).map(|i| {
        let registry = &registries[i % 2];
        async move {
            match i % 3 {
                0 => join_server(registry, "a:1").await.0,
                1 => join_worker(registry, 0).await.0,
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
    let workers = until(&registries[0], "all are listed", |view| {
        view.workers.workers.len() == 4
    })
    .await;
    assert_eq!(
        workers.workers.version, 4,
        "every worker raised the version"
    );
    for membership in memberships {
        membership.leave().await.unwrap();
    }
    let (late, _) = join_server(&registries[1], "a:1").await;
    assert!(
        !numbers.contains(&number(&late)),
        "a new life under an old number"
    );
}

async fn workers_are_listed_with_their_clocks(fixture: Fixture) {
    let registry = fixture.open().await;
    let (first, a) = join_worker(&registry, 0).await;
    let (second, b) = join_worker(&registry, 17).await;
    let view = until(&registry, "both are listed", |view| {
        view.workers.workers.len() == 2
    })
    .await;
    assert_eq!(view.workers.workers, [(a, Clock(0)), (b, Clock(17))]);
    first.leave().await.unwrap();
    let view = until(&registry, "one is listed", |view| {
        view.workers.workers.len() == 1
    })
    .await;
    assert_eq!(
        (view.workers.version, &view.workers.workers[..]),
        (3, &[(b, Clock(17))][..])
    );

    // The leader takes off a worker that died.
    let leader = registry.join(Joining::Coordinator).await.unwrap();
    let term = leader.campaign(None).await.unwrap().unwrap();
    registry.drop_workers(term, &[b]).await.unwrap();
    until(&registry, "none is listed", |view| {
        view.workers.workers.is_empty()
    })
    .await;
    registry.drop_workers(term, &[b]).await.unwrap();
    drop(second);
}

async fn one_leads(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let [a, b] = [
        one.join(Joining::Coordinator).await.unwrap(),
        other.join(Joining::Coordinator).await.unwrap(),
    ];
    let (first, second) = tokio::join!(a.campaign(None), b.campaign(None));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.is_some() != second.is_some(), "{first:?} {second:?}");
    let (winner, loser, term) = if first.is_some() {
        (a, b, first)
    } else {
        (b, a, second)
    };
    let term = term.unwrap();
    let view = until(&one, "the leader is known", |view| view.leader.is_some()).await;
    assert_eq!(
        view.leader,
        Some(Leader {
            term,
            member: winner.id()
        })
    );
    assert_eq!(loser.campaign(None).await.unwrap(), None);
    assert_eq!(
        loser
            .campaign(Some(Term(Revision(term.0.0 + 1_000))))
            .await
            .unwrap(),
        None,
        "not this term"
    );

    // Deposed: what the old leader writes is refused from then on.
    let later = loser.campaign(Some(term)).await.unwrap().unwrap();
    assert!(later > term);
    let nodes = [NodeId(1)];
    let refused = one.change(term, Revision(0), &table(1, &nodes), &[]).await;
    assert_eq!(refused, Err(RegistryError::Deposed));
    assert_eq!(
        one.drop_workers(term, &[]).await,
        Ok(()),
        "nothing to do, nothing refused"
    );
    one.change(later, Revision(0), &table(1, &nodes), &[])
        .await
        .unwrap();

    loser.leave().await.unwrap();
    until(&one, "nobody leads", |view| view.leader.is_none()).await;
    assert!(winner.campaign(None).await.unwrap().unwrap() > later);
}

async fn executors_are_listed_until_they_are_taken_off(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (first, second) = tokio::join!(
        one.add_executors(3, Clock(4)),
        other.add_executors(2, Clock(4))
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    let host = one.join(Joining::Host).await.unwrap();
    let view = until(&other, "all are listed", |view| {
        view.workers.workers.len() == 5 && view.present_workers.len() == 1
    })
    .await;
    let listed: BTreeSet<WorkerId> = view
        .workers
        .workers
        .iter()
        .map(|&(worker, _)| worker)
        .collect();
    assert_eq!(listed, first.iter().chain(&second).copied().collect());
    assert!(
        view.cluster().workers.is_empty(),
        "the leader misses none of them"
    );
    drop(host);
    one.remove_executors(&first).await.unwrap();
    let view = until(&other, "some are listed", |view| {
        view.workers.workers.len() == 2
    })
    .await;
    assert_eq!(view.workers.executors, second.iter().copied().collect());
}

async fn a_job_is_seen_until_it_is_done(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    one.set_job(Some("learn")).await.unwrap();
    until(&other, "the job is seen", |view| {
        view.job.as_deref() == Some("learn")
    })
    .await;
    one.set_job(None).await.unwrap();
    until(&other, "it is done", |view| view.job.is_none()).await;
}

async fn an_outage_leaves_what_is_known(fixture: Fixture) {
    let registry = fixture.open().await;
    let (a, node) = join_server(&registry, "a:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    let before = registry
        .change(term, Revision(0), &table(1, &[node]), &[])
        .await
        .unwrap();
    until(&registry, "the table is seen", |view| {
        view.table.revision == before
    })
    .await;

    fixture.suspend();
    let start = Instant::now();
    let error = registry
        .change(term, before, &table(2, &[node]), &[])
        .await
        .unwrap_err();
    assert!(
        error.is_retryable() && matches!(error, RegistryError::Unreachable { .. }),
        "{error}"
    );
    fixture.assert_within(Duration::from_secs(4), start);
    let view = until(&registry, "it is known to be away", |view| !view.reachable).await;
    assert_eq!(view.table.routing, table(1, &[node]), "the table stays");
    // What is reported meanwhile is written later. The change of the table may happen then, too:
    // the report must be about what is so under either table.
    let lost = Report::Lost(shard(9));
    a.report(lost).unwrap();
    fixture.resume();
    let back = |view: &parapet_cluster::registry::View| {
        view.reachable && view.reports.values().any(|(_, report)| *report == lost)
    };
    until(&registry, "the report came through", back).await;
    until(&fixture.open().await, "others see it", back).await;
}

async fn a_membership_survives_its_lease(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (a, node) = join_server(&one, "a:1").await;
    let (_w, worker) = join_worker(&one, 5).await;
    a.report(Report::Lost(shard(3))).unwrap();
    let is_whole = |view: &parapet_cluster::registry::View| {
        view.reachable
            && view.servers.contains_key(&node)
            && view.present_workers.contains(&worker)
            && view.reports.len() == 1
    };
    until(&other, "all is there", is_whole).await;
    fixture.suspend_for_long().await;
    a.report(Report::Lost(ShardRef {
        range: KeyRange::new(200, 300),
        ..shard(1)
    }))
    .unwrap();
    let came_back = |view: &parapet_cluster::registry::View| {
        view.reachable
            && view.servers.get(&node) == Some(&server("a:1"))
            && view.present_workers.contains(&worker)
            && view.workers.workers == [(worker, Clock(5))]
            && view.reports.len() == 2
    };
    until(&other, "all came back", came_back).await;
    until(&fixture.open().await, "and is there for others", came_back).await;
}

async fn a_leadership_does_not_survive_its_lease(fixture: Fixture) {
    let (one, other) = (fixture.open().await, fixture.open().await);
    let (a, node) = join_server(&one, "a:1").await;
    let term = a.campaign(None).await.unwrap().unwrap();
    until(&other, "it leads", |view| view.leader.is_some()).await;
    drop(a);
    until(&other, "nobody leads", |view| {
        view.leader.is_none() && view.servers.is_empty()
    })
    .await;
    let refused = one.change(term, Revision(0), &table(1, &[node]), &[]).await;
    assert_eq!(refused, Err(RegistryError::Deposed));
    let (b, _) = join_server(&other, "b:1").await;
    assert!(b.campaign(None).await.unwrap().unwrap() > term);
}
