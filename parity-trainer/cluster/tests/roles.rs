//! Servers die, join and leave under workers that go on, over a registry in memory and both
//! transports.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_cluster::node::Transport;
use parapet_cluster::registry::{Joining, Member, View};
use parapet_parameter_server::Consistency;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use support::{Cluster, assert_sum, ones, push, soon, spec};
use tokio::time::{Instant, sleep};

/// Pushes must go on, and replicas be made again, within this time of a death.
const BOUND: Duration = Duration::from_secs(1);

/// Each test over real sockets, and in memory with time that passes by itself.
macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod tcp {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Transport::Tcp).await;
            })*
        }
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(super::Transport::memory()).await;
            })*
        }
    };
}

over_both!(
    killed_head_is_succeeded_and_no_acknowledged_push_is_lost,
    killed_leader_is_succeeded_too,
    server_that_joins_gets_shards,
    server_that_leaves_takes_nothing_with_it,
    workers_that_are_dropped_are_not_waited_for,
    last_server_may_leave,
);

fn is_replicated(view: &View) -> bool {
    let routes = view.table.routing.routes();
    let is_whole = routes.iter().all(|route| route.chain.len() == 2);
    view.table.hand_overs.is_empty() && is_whole
}

async fn killed_head_is_succeeded_and_no_acknowledged_push_is_lost(transport: Transport) {
    let mut cluster = Cluster::start(transport, 3, 2, Consistency::Eventual, true).await;
    let worker = cluster.worker(Consistency::Eventual, 0).await;
    push(&worker, 1..=20).await;
    let view = cluster.view();
    let dead = view.table.routing.routes()[0].head().unwrap();
    let since = Instant::now();
    // The next pushes are on their way while it dies.
    let mut under_way = Vec::new();
    for clock in 21..=40 {
        under_way.push(worker.push(spec(clock), ones()).await.unwrap());
        if clock == 30 {
            cluster.kill(dead);
        }
    }
    for pushed in under_way {
        soon(pushed).await.unwrap();
    }
    let after = cluster.until(|view| !view.table.holds(dead)).await;
    let old = view.table.routing.routes().iter();
    for old in old.filter(|route| route.head() == Some(dead)) {
        let new = after.table.routing.route(old.array, old.range.start).unwrap();
        let is_next = new.head() == old.chain.get(1).copied();
        assert!(new.epoch > old.epoch && is_next, "{old:?}, then {new:?}");
    }
    cluster.assert_within(BOUND, since, "the succession");
    push(&worker, 41..=60).await;
    assert_sum(&worker, 0, 60.0).await;
    cluster.until(is_replicated).await;
    cluster.assert_within(BOUND, since, "replication");
    push(&worker, 61..=65).await;
    assert_sum(&worker, 0, 65.0).await;
}

async fn killed_leader_is_succeeded_too(transport: Transport) {
    let mut cluster = Cluster::start(transport, 3, 2, Consistency::Ssp(0), false).await;
    let worker = cluster.worker(Consistency::Ssp(0), 0).await;
    push(&worker, 1..=5).await;
    let view = cluster.until(|view| view.leader.is_some()).await;
    let leader = view.leader.unwrap();
    let Member::Server(dead) = leader.member else { panic!("{leader:?}") };
    let since = Instant::now();
    cluster.kill(dead);
    push(&worker, 6..=10).await;
    let is_next = |view: &View| view.leader.is_some_and(|next| next.term > leader.term);
    cluster.until(is_next).await;
    cluster.until(|view| !view.table.holds(dead)).await;
    cluster.assert_within(BOUND, since, "the succession");
    push(&worker, 11..=15).await;
    assert_sum(&worker, 16, 15.0).await;
    cluster.assert_within(BOUND, since, "what follows it");
}

/// Heads die one after the other, some while the registry still lists the one before, and another
/// takes its place each time. A process that says nothing of servers is there, too, so that the
/// workers' word does not count.
async fn kill_again_and_again(coordinator: bool, seed: u64) {
    let (memory, eventual) = (Transport::memory(), Consistency::Eventual);
    let mut cluster = Cluster::start(memory, 2, 2, eventual, coordinator).await;
    let worker = cluster.worker(eventual, 0).await;
    let _host = cluster.registry.join(Joining::Host).await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut clock = 0;
    for kill in 1..=20 {
        let within = |cluster: &Cluster, since: Instant, what: &str| {
            let what = format!("seed {seed}, kill {kill}: {what}");
            cluster.assert_within(BOUND, since, &what);
        };
        let since = Instant::now();
        cluster.until(is_replicated).await;
        within(&cluster, since, "replication before");
        sleep(Duration::from_millis(random.random_range(0..1500))).await;
        let view = cluster.view();
        let routes = view.table.routing.routes();
        let dead = routes[random.random_range(0..routes.len())].head().unwrap();
        push(&worker, clock + 1..=clock + 1).await;
        let since = Instant::now();
        cluster.kill(dead);
        push(&worker, clock + 2..=clock + 3).await;
        within(&cluster, since, "the push after");
        clock += 3;
        cluster.join().await;
        // What the next table, the newcomer and the dead server's lease set off must not make
        // pushes wait either.
        for _ in 0..random.random_range(0..40) {
            let since = Instant::now();
            clock += 1;
            push(&worker, clock..=clock).await;
            within(&cluster, since, "a later push");
            sleep(Duration::from_millis(random.random_range(0..100))).await;
        }
        assert_sum(&worker, 0, clock as f32).await;
    }
}

#[tokio::test(start_paused = true)]
async fn heads_that_die_one_after_the_other_are_succeeded() {
    for seed in 0..5 {
        kill_again_and_again(true, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn heads_and_leaders_that_die_one_after_the_other_are_succeeded() {
    for seed in 0..5 {
        kill_again_and_again(false, seed).await;
    }
}

async fn server_that_joins_gets_shards(transport: Transport) {
    let mut cluster = Cluster::start(transport, 1, 1, Consistency::Bsp, true).await;
    let worker = cluster.worker(Consistency::Bsp, 0).await;
    push(&worker, 1..=5).await;
    let joined = cluster.join().await;
    push(&worker, 6..=10).await;
    cluster.until(|view| view.table.holds(joined)).await;
    push(&worker, 11..=15).await;
    assert_sum(&worker, 16, 15.0).await;
}

async fn server_that_leaves_takes_nothing_with_it(transport: Transport) {
    let mut cluster = Cluster::start(transport, 2, 1, Consistency::Ssp(1), true).await;
    let worker = cluster.worker(Consistency::Ssp(1), 0).await;
    push(&worker, 1..=5).await;
    let leaves = cluster.view().table.routing.routes()[0].head().unwrap();
    cluster.leave(leaves).await;
    let is_gone = |view: &View| !view.servers.contains_key(&leaves) && !view.table.holds(leaves);
    cluster.until(is_gone).await;
    push(&worker, 6..=10).await;
    assert_sum(&worker, 11, 10.0).await;
}

async fn workers_that_are_dropped_are_not_waited_for(transport: Transport) {
    let cluster = Cluster::start(transport, 2, 2, Consistency::Bsp, true).await;
    let one = cluster.worker(Consistency::Bsp, 0).await;
    let other = cluster.worker(Consistency::Bsp, 0).await;
    tokio::join!(push(&one, 1..=3), push(&other, 1..=3));
    assert_sum(&one, 4, 6.0).await;
    let listed = cluster.view().workers.listed().collect::<Vec<_>>();
    cluster.registry.drop_executors(&listed[1..]).await.unwrap();
    push(&one, 4..=6).await;
    assert_sum(&one, 7, 9.0).await;
    drop(other);
}

async fn last_server_may_leave(transport: Transport) {
    let mut cluster = Cluster::start(transport, 1, 1, Consistency::Bsp, true).await;
    let only = *cluster.view().servers.keys().next().unwrap();
    cluster.leave(only).await;
    cluster.until(|view| view.servers.is_empty()).await;
}
