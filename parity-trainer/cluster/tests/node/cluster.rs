//! Servers and workers over real sockets: sums, replication, failures, bad input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

use crate::harness as cluster;

use std::sync::Arc;
use std::time::Duration;

use cluster::{ARRAY, Cluster, KEYS, WIDTH, soon, spec};
use parapet_cluster::node::transport::{Memory, Tcp};
use parapet_cluster::node::{TaskError, TaskSpec, Worker};
use parapet_parameter_server::{
    ArrayFilters, Clock, Consistency, KeyRange, Keys, NodeId, Refusal, SubmitError, Values,
    ValuesError,
};
use tokio::io::AsyncWriteExt as _;

fn ones() -> Values {
    Values::from(vec![1.0; KEYS as usize * WIDTH])
}

/// Pushes ones for these clocks, each before it pulls; everything pulled must be what all
/// workers have pushed.
async fn count(worker: &Worker, clocks: std::ops::RangeInclusive<u64>, workers: f32) {
    count_within(worker, clocks, workers, 0.0).await;
}

/// As [`count`]; up to `ahead` ones of the next clock may be there, too.
async fn count_within(
    worker: &Worker,
    clocks: std::ops::RangeInclusive<u64>,
    workers: f32,
    ahead: f32,
) {
    for clock in clocks {
        let both = worker.push_pull(spec(clock), ones()).await.unwrap();
        let pulled = soon(both.pull).await.unwrap();
        assert_eq!(pulled.values.len(), KEYS as usize * WIDTH);
        assert!(
            pulled
                .values
                .iter()
                .all(|&v| (0.0..=ahead).contains(&(v - workers * clock as f32))),
            "clock {clock}: {:?}",
            pulled.values
        );
        soon(both.push).await.unwrap();
    }
}

#[tokio::test]
async fn one_worker_and_one_server_add_up() {
    let mut cluster = Cluster::start(Tcp, 1, 1, 1, Consistency::Bsp).await;
    count(&cluster.worker(0), 1..=20, 1.0).await;
}

#[tokio::test]
async fn two_workers_and_two_servers_with_two_replicas_add_up() {
    // SSP answers with all of a clock, and may have begun the next one.
    for (consistency, ahead) in [(Consistency::Bsp, 0.0), (Consistency::Ssp(0), 1.0)] {
        let mut cluster = Cluster::start(Tcp, 2, 2, 2, consistency).await;
        let (one, other) = (cluster.worker(0), cluster.worker(1));
        tokio::join!(
            count_within(&one, 1..=20, 2.0, ahead),
            count_within(&other, 1..=20, 2.0, ahead)
        );
    }
}

#[tokio::test]
async fn in_memory_works_alike() {
    let mut cluster = Cluster::start(Memory::default(), 2, 3, 2, Consistency::Bsp).await;
    let (one, other) = (cluster.worker(0), cluster.worker(1));
    tokio::join!(count(&one, 1..=20, 2.0), count(&other, 1..=20, 2.0));
}

/// A message given to a full queue, or before there is a connection, is lost, and sent again after
/// two seconds: the worker must wait for room before that.
#[tokio::test(start_paused = true)]
async fn many_large_pushes_at_once_wait_for_room() {
    let mut cluster = Cluster::start(Memory::default(), 1, 1, 1, Consistency::Bsp).await;
    let worker = cluster.worker(0);
    let since = tokio::time::Instant::now();
    let mut pending = Vec::new();
    for clock in (1..=100).map(Clock) {
        let values = Values::from(vec![1.0; cluster::BIG]);
        pending.push(
            worker
                .push(
                    TaskSpec {
                        clock,
                        ..cluster.big()
                    },
                    values,
                )
                .await
                .unwrap(),
        );
    }
    for push in pending {
        soon(push).await.unwrap();
    }
    assert!(
        since.elapsed() < Duration::from_secs(1),
        "{:?}",
        since.elapsed()
    );
}

/// Pushes clock after clock while servers fail; every acknowledged push is there in the end, once.
async fn survives(fail: impl AsyncFnOnce(&mut Cluster<Tcp>), within: Duration) {
    let mut cluster = Cluster::start(Tcp, 1, 2, 2, Consistency::Eventual).await;
    let worker = cluster.worker(0);
    let pushing = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        for clock in 1..=300 {
            let since = tokio::time::Instant::now();
            let push = worker.push(spec(clock), ones()).await.unwrap();
            soon(push).await.unwrap();
            longest = longest.max(since.elapsed());
        }
        (worker, longest)
    });
    cluster.acknowledged(20).await;
    fail(&mut cluster).await;
    let (worker, longest) = soon(pushing).await.unwrap();
    let pulled = soon(worker.pull(spec(0)).await.unwrap()).await.unwrap();
    assert!(
        pulled.values.iter().all(|&v| v == 300.0),
        "{:?}",
        pulled.values
    );
    let chains: Vec<Vec<NodeId>> = cluster
        .view()
        .table
        .routing
        .routes()
        .iter()
        .map(|route| route.chain.clone())
        .collect();
    assert!(
        chains.iter().all(|chain| chain[..] == [NodeId(1)]),
        "the successor is promoted: {chains:?}"
    );
    assert!(longest < within, "a push took {longest:?}");
}

#[tokio::test]
async fn a_killed_server_is_succeeded_and_nothing_acknowledged_is_lost() {
    survives(async |cluster| cluster.kill(0), Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_suspected_by_its_silence() {
    survives(async |cluster| cluster.freeze(0), Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_server_joins_by_a_copy_and_the_old_one_may_go() {
    let mut cluster = Cluster::start(Tcp, 1, 2, 1, Consistency::Ssp(0)).await;
    let worker = cluster.worker(0);
    count(&worker, 1..=5, 1.0).await;
    cluster.hand_over_all(NodeId(2)).await;
    count(&worker, 6..=10, 1.0).await;
    cluster.kill(0);
    cluster.kill(1);
    count(&worker, 11..=15, 1.0).await;
    assert!(
        cluster
            .view()
            .table
            .routing
            .routes()
            .iter()
            .all(|route| route.chain[..] == [NodeId(2)])
    );
}

#[tokio::test]
async fn a_worker_that_is_no_member_yet_is_served_once_it_is() {
    let mut cluster = Cluster::start(Tcp, 1, 1, 1, Consistency::Eventual).await;
    let stranger = cluster.worker(7);
    let push = stranger.push(spec(1), ones()).await.unwrap();
    cluster.join(7);
    soon(push).await.unwrap();
}

#[tokio::test]
async fn tasks_that_cannot_succeed_say_so() {
    let mut cluster = Cluster::start(Tcp, 1, 1, 1, Consistency::Eventual).await;
    let worker = cluster.worker(0);
    let mut values = vec![0.0; KEYS as usize * WIDTH];
    values[3] = f32::NAN;
    let push = worker.push(spec(1), values.into()).await.unwrap();
    let later = worker.push(spec(2).after([push.id()]), ones()).await;
    let refusal = Refusal::BadValues(ValuesError::NotFinite { at: 3 });
    assert_eq!(
        soon(push).await,
        Err(TaskError::Submit(SubmitError::Malformed(refusal)))
    );
    drop(later);
    let long = TaskSpec::new(ARRAY, KeyRange::new(0, 1 << 40), Clock(1));
    assert!(matches!(
        worker.pull(long).await,
        Err(TaskError::TooLong { .. })
    ));
    let unknown = TaskSpec::new(
        parapet_parameter_server::ArrayId(9),
        KeyRange::new(0, 1),
        Clock(1),
    );
    let unknown = worker.pull(unknown).await.unwrap();
    assert!(matches!(
        soon(unknown).await,
        Err(TaskError::Submit(SubmitError::UnknownArray(_)))
    ));
}

#[tokio::test]
async fn nonsense_at_a_servers_socket_does_not_disturb_it() {
    let mut cluster = Cluster::start(Tcp, 1, 1, 1, Consistency::Bsp).await;
    let worker = cluster.worker(0);
    count(&worker, 1..=2, 1.0).await;
    let address = cluster.address(0);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 200],
        vec![0xff; 5],
    ] {
        let mut raw = tokio::net::TcpStream::connect(&address).await.unwrap();
        raw.write_all(&bytes).await.unwrap();
    }
    count(&worker, 3..=5, 1.0).await;
}

#[tokio::test]
async fn rows_named_by_keys_travel_through_filters() {
    let filters = ArrayFilters {
        key_lists: true,
        lz4: true,
        ..ArrayFilters::default()
    };
    let mut cluster = Cluster::start_filtered(Tcp, 1, 2, 1, Consistency::Eventual, filters).await;
    let worker = cluster.worker(0);
    let keys: Vec<u64> = (0..KEYS).step_by(2).collect();
    let named = |clock| spec(clock).keys(Keys::List(keys.clone().into()));
    for clock in 1..=3 {
        let values = Values::from(vec![1.0; keys.len() * WIDTH]);
        let both = worker.push_pull(named(clock), values).await.unwrap();
        soon(both.push).await.unwrap();
        assert!(
            soon(both.pull)
                .await
                .unwrap()
                .values
                .iter()
                .all(|&v| v == clock as f32)
        );
    }
    let all = soon(worker.pull(spec(0)).await.unwrap()).await.unwrap();
    assert_eq!(
        all.values.iter().sum::<f32>(),
        3.0 * (keys.len() * WIDTH) as f32
    );
}

/// Far more is asked for than queues hold: peers wait for one another, and nothing is dropped.
#[tokio::test]
async fn large_answers_wait_for_whoever_asked() {
    let mut cluster = Cluster::start_with(Tcp, 1, 1, 1, Consistency::Eventual, |config| {
        config.queue = 64 * 1024;
        config.inbox = 64 * 1024;
    })
    .await;
    let worker = Arc::new(cluster.worker(0));
    let big = cluster.big();
    let mut pulls = Vec::new();
    for _ in 0..40 {
        pulls.push(worker.pull(big.clone()).await.unwrap());
    }
    for pull in pulls {
        assert_eq!(soon(pull).await.unwrap().values.len(), cluster::BIG);
    }
    assert_eq!(cluster.counters(0).await.dropped, 0);
}
