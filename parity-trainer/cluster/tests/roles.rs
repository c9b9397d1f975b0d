//! Servers die, join and leave under workers that go on, over a registry in memory and both
//! transports.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::transport::{Memory, Tcp, Transport};
use parapet_cluster::registry::{Joining, View};
use parapet_parameter_server::Consistency;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use support::{Cluster, assert_sum, assert_within, holds, push};
use tokio::time::Instant;

/// Pushes must go on, and replicas be made again, within this time of a death.
const BOUND: Duration = Duration::from_secs(1);

/// Each test over real sockets, and in memory with time that passes by itself.
macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod tcp {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Tcp).await;
            })*
        }
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(super::Memory::default()).await;
            })*
        }
    };
}

over_both!(
    a_killed_head_is_succeeded_and_nothing_acknowledged_is_lost,
    a_killed_leader_is_succeeded_too,
    a_server_that_joins_gets_shards,
    a_server_that_leaves_takes_nothing_with_it,
    workers_that_leave_are_not_waited_for,
    the_last_server_may_leave,
);

async fn a_killed_head_is_succeeded_and_nothing_acknowledged_is_lost<T: Transport>(transport: T) {
    let mut cluster = Cluster::start(transport, 3, 2, Consistency::Eventual, true).await;
    let worker = cluster.worker(Consistency::Eventual).await;
    push(&worker, 1..=20).await;
    let view = cluster.view();
    let dead = view.table.routing.routes()[0].head().unwrap();
    let since = Instant::now();
    // The next pushes are on their way while it dies.
    let mut under_way = Vec::new();
    for clock in 21..=40 {
        under_way.push(
            worker
                .worker()
                .push(support::spec(clock), support::ones())
                .await
                .unwrap(),
        );
        if clock == 30 {
            cluster.kill(dead);
        }
    }
    for pushed in under_way {
        support::soon(pushed).await.unwrap();
    }
    let after = cluster
        .until("the dead server is in no chain", |view| !holds(view, dead))
        .await;
    for old in view
        .table
        .routing
        .routes()
        .iter()
        .filter(|route| route.head() == Some(dead))
    {
        let new = after
            .table
            .routing
            .route(old.array, old.range.start)
            .unwrap();
        assert!(
            new.epoch > old.epoch && new.head() == old.chain.get(1).copied(),
            "{old:?}, then {new:?}"
        );
    }
    assert_within::<T>(BOUND, since, "the succession");
    push(&worker, 41..=60).await;
    assert_sum(&worker, 0, 60.0).await;
    cluster
        .until("each shard has two replicas again", is_replicated)
        .await;
    assert_within::<T>(BOUND, since, "replication");
    push(&worker, 61..=65).await;
    assert_sum(&worker, 0, 65.0).await;
}

fn is_replicated(view: &View) -> bool {
    view.table.hand_overs.is_empty()
        && view
            .table
            .routing
            .routes()
            .iter()
            .all(|route| route.chain.len() == 2)
}

async fn a_killed_leader_is_succeeded_too<T: Transport>(transport: T) {
    let mut cluster = Cluster::start(transport, 3, 2, Consistency::Ssp(0), false).await;
    let worker = cluster.worker(Consistency::Ssp(0)).await;
    push(&worker, 1..=5).await;
    let leader = cluster
        .until("somebody leads", |view| view.leader.is_some())
        .await
        .leader
        .unwrap();
    let dead = match leader.member {
        parapet_cluster::registry::Member::Server(node) => node,
        other => panic!("{other} leads"),
    };
    let since = Instant::now();
    cluster.kill(dead);
    push(&worker, 6..=10).await;
    cluster
        .until("another one leads", |view| {
            view.leader.is_some_and(|next| next.term > leader.term)
        })
        .await;
    cluster
        .until("the dead server is in no chain", |view| !holds(view, dead))
        .await;
    assert_within::<T>(BOUND, since, "the succession");
    push(&worker, 11..=15).await;
    assert_sum(&worker, 16, 15.0).await;
    assert_within::<T>(BOUND, since, "what follows it");
}

/// Heads die one after the other, some while the registry still lists the one before, and another
/// takes its place each time. A process that says nothing of servers is there, too, so that the
/// workers' word does not count.
async fn dies_again_and_again(coordinator: bool, seed: u64) {
    let mut cluster =
        Cluster::start(Memory::default(), 2, 2, Consistency::Eventual, coordinator).await;
    let worker = cluster.worker(Consistency::Eventual).await;
    let _host = cluster.registry.join(Joining::Host).await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut clock = 0;
    for kill in 1..=20 {
        let since = Instant::now();
        cluster
            .until("each shard has two replicas", is_replicated)
            .await;
        assert_within::<Memory>(
            BOUND,
            since,
            &format!("seed {seed}: replication before kill {kill}"),
        );
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        let view = cluster.view();
        let routes = view.table.routing.routes();
        let dead = routes[random.random_range(0..routes.len())].head().unwrap();
        push(&worker, clock + 1..=clock + 1).await;
        let since = Instant::now();
        cluster.kill(dead);
        push(&worker, clock + 2..=clock + 3).await;
        assert_within::<Memory>(
            BOUND,
            since,
            &format!("seed {seed}: the push after kill {kill}"),
        );
        clock += 3;
        cluster.join().await;
        // What the next table, the newcomer and the dead server's lease set off must not make
        // pushes wait either.
        for _ in 0..random.random_range(0..40) {
            let since = Instant::now();
            clock += 1;
            push(&worker, clock..=clock).await;
            assert_within::<Memory>(
                BOUND,
                since,
                &format!("seed {seed}: a push after kill {kill}"),
            );
            tokio::time::sleep(Duration::from_millis(random.random_range(0..100))).await;
        }
        assert_sum(&worker, 0, clock as f32).await;
    }
}

#[tokio::test(start_paused = true)]
async fn heads_that_die_one_after_the_other_are_succeeded() {
    for seed in 0..5 {
        dies_again_and_again(true, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn heads_and_leaders_that_die_one_after_the_other_are_succeeded() {
    for seed in 0..5 {
        dies_again_and_again(false, seed).await;
    }
}

async fn a_server_that_joins_gets_shards<T: Transport>(transport: T) {
    let mut cluster = Cluster::start(transport, 1, 1, Consistency::Bsp, true).await;
    let worker = cluster.worker(Consistency::Bsp).await;
    push(&worker, 1..=5).await;
    let joined = cluster.join().await;
    push(&worker, 6..=10).await;
    cluster
        .until("the newcomer holds shards", |view| holds(view, joined))
        .await;
    push(&worker, 11..=15).await;
    assert_sum(&worker, 16, 15.0).await;
}

async fn a_server_that_leaves_takes_nothing_with_it<T: Transport>(transport: T) {
    let mut cluster = Cluster::start(transport, 2, 1, Consistency::Ssp(1), true).await;
    let worker = cluster.worker(Consistency::Ssp(1)).await;
    push(&worker, 1..=5).await;
    let routing = cluster.view().table.routing.clone();
    let leaves = routing.routes()[0].head().unwrap();
    assert!(cluster.heads(leaves) > 0);
    cluster.leave(leaves).await;
    cluster
        .until("it is gone", |view| {
            !view.servers.contains_key(&leaves) && !holds(view, leaves)
        })
        .await;
    push(&worker, 6..=10).await;
    assert_sum(&worker, 11, 10.0).await;
}

async fn workers_that_leave_are_not_waited_for<T: Transport>(transport: T) {
    let cluster = Cluster::start(transport, 2, 2, Consistency::Bsp, true).await;
    let one = cluster.worker(Consistency::Bsp).await;
    let other = cluster.worker(Consistency::Bsp).await;
    tokio::join!(push(&one, 1..=3), push(&other, 1..=3));
    assert_sum(&one, 4, 6.0).await;
    other.leave().await.unwrap();
    push(&one, 4..=6).await;
    assert_sum(&one, 7, 9.0).await;
    // Neither is one that dies, once the leader has missed it for long enough.
    let third = cluster.worker_from(Consistency::Bsp, 6).await;
    drop(third);
    push(&one, 7..=8).await;
    assert_sum(&one, 9, 11.0).await;
}

async fn the_last_server_may_leave<T: Transport>(transport: T) {
    let mut cluster = Cluster::start(transport, 1, 1, Consistency::Bsp, true).await;
    let only = *cluster.view().servers.keys().next().unwrap();
    cluster.leave(only).await;
    cluster
        .until("it is gone", |view| view.servers.is_empty())
        .await;
}
