//! Servers and workers over real sockets: sums, replication, failures, bad input.

use std::time::Duration;

use parapet_cluster::node::Transport::Tcp;
use parapet_cluster::node::{Bounds, TaskError, TaskSpec, Transport, Worker};
use parapet_parameter_server::{
    ArrayFilters, ArrayId, Clock, Consistency, KeyRange, Keys, NodeId, Refusal, SubmitError,
    Values, ValuesError,
};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::harness::{ARRAY, BIG, Cluster, KEYS, Setup, WIDTH, big, soon, spec};

fn ones() -> Values {
    Values::from(vec![1.0; KEYS as usize * WIDTH])
}

/// Pushes ones for these clocks, each before it pulls; everything pulled must be what all workers
/// have pushed. Up to `ahead` ones of the next clock may be there, too.
async fn count(worker: &Worker, clocks: std::ops::RangeInclusive<u64>, workers: f32, ahead: f32) {
    for clock in clocks {
        let push = worker.push(spec(clock), ones()).await.unwrap();
        let pull = worker.pull(spec(clock + 1)).await.unwrap();
        let values = soon(pull).await.unwrap().values;
        assert_eq!(values.len(), KEYS as usize * WIDTH);
        let expected = workers * clock as f32..=workers * clock as f32 + ahead;
        assert!(values.iter().all(|v| expected.contains(v)), "clock {clock}: {values:?}");
        soon(push).await.unwrap();
    }
}

async fn two_workers_add_up(transport: Transport, servers: u64, consistency: Consistency) {
    let cluster = Cluster::start(transport, Setup::new(2, servers, 2, consistency)).await;
    let (one, other) = (cluster.worker(0), cluster.worker(1));
    // SSP answers with all of a clock, and may have begun the next one.
    let ahead = if consistency == Consistency::Bsp { 0.0 } else { 1.0 };
    tokio::join!(count(&one, 1..=20, 2.0, ahead), count(&other, 1..=20, 2.0, ahead));
}

#[tokio::test]
async fn one_worker_and_one_server_add_up() {
    let cluster = Cluster::start(Tcp, Setup::new(1, 1, 1, Consistency::Bsp)).await;
    count(&cluster.worker(0), 1..=20, 1.0, 0.0).await;
}

#[tokio::test]
async fn two_workers_and_replicated_servers_add_up() {
    two_workers_add_up(Tcp, 2, Consistency::Bsp).await;
    two_workers_add_up(Tcp, 2, Consistency::Ssp(0)).await;
    two_workers_add_up(Transport::memory(), 3, Consistency::Bsp).await;
}

/// A message given to a full queue, or before there is a connection, is lost, and sent again after
/// two seconds: the worker must wait for room before that.
#[tokio::test(start_paused = true)]
async fn many_large_pushes_at_once_wait_for_room() {
    let cluster = Cluster::start(Transport::memory(), Setup::new(1, 1, 1, Consistency::Bsp)).await;
    let worker = cluster.worker(0);
    let since = Instant::now();
    let mut pending = Vec::new();
    for clock in 1..=100 {
        let values = Values::from(vec![1.0; BIG]);
        pending.push(worker.push(big(clock), values).await.unwrap());
    }
    for push in pending {
        soon(push).await.unwrap();
    }
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

/// Pushes clock after clock while servers fail; every acknowledged push is there in the end, once.
async fn survives(fail: impl FnOnce(&Cluster), within: Duration) {
    let cluster = Cluster::start(Tcp, Setup::new(1, 2, 2, Consistency::Eventual)).await;
    let worker = cluster.worker(0);
    let pushing = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        for clock in 1..=300 {
            let since = Instant::now();
            let push = worker.push(spec(clock), ones()).await.unwrap();
            soon(push).await.unwrap();
            longest = longest.max(since.elapsed());
        }
        (worker, longest)
    });
    cluster.acknowledged(20).await;
    fail(&cluster);
    let (worker, longest) = soon(pushing).await.unwrap();
    let values = soon(worker.pull(spec(0)).await.unwrap()).await.unwrap().values;
    assert!(values.iter().all(|&v| v == 300.0), "{values:?}");
    assert!(cluster.chains_are(&[NodeId(1)]), "the successor is promoted");
    assert!(longest < within, "a push took {longest:?}");
}

#[tokio::test]
async fn killed_server_is_succeeded_and_nothing_acknowledged_is_lost() {
    survives(|cluster| cluster.kill(0), Duration::from_secs(5)).await;
}

#[tokio::test]
async fn server_that_hangs_is_suspected_by_its_silence() {
    survives(|cluster| cluster.freeze(0), Duration::from_secs(10)).await;
}

#[tokio::test]
async fn server_joins_by_a_copy_and_the_old_one_may_go() {
    let cluster = Cluster::start(Tcp, Setup::new(1, 2, 1, Consistency::Ssp(0))).await;
    let worker = cluster.worker(0);
    count(&worker, 1..=5, 1.0, 0.0).await;
    cluster.hand_over_all(NodeId(2)).await;
    count(&worker, 6..=10, 1.0, 0.0).await;
    cluster.kill(0);
    cluster.kill(1);
    count(&worker, 11..=15, 1.0, 0.0).await;
    assert!(cluster.chains_are(&[NodeId(2)]));
}

#[tokio::test]
async fn worker_that_is_no_member_yet_is_served_once_it_is() {
    let cluster = Cluster::start(Tcp, Setup::new(1, 1, 1, Consistency::Eventual)).await;
    let push = cluster.worker(7).push(spec(1), ones()).await.unwrap();
    cluster.join(7);
    soon(push).await.unwrap();
}

#[tokio::test]
async fn tasks_that_cannot_succeed_say_so() {
    let cluster = Cluster::start(Tcp, Setup::new(1, 1, 1, Consistency::Eventual)).await;
    let worker = cluster.worker(0);
    let mut values = vec![0.0; KEYS as usize * WIDTH];
    values[3] = f32::NAN;
    let push = worker.push(spec(1), values.into()).await.unwrap();
    let refusal = Refusal::BadValues(ValuesError::NotFinite { at: 3 });
    let expected = TaskError::Submit(SubmitError::Malformed(refusal));
    assert_eq!(soon(push).await, Err(expected));
    let long = TaskSpec::new(ARRAY, KeyRange::new(0, 1 << 40), Clock(1));
    let too_long = worker.pull(long).await;
    assert!(matches!(too_long, Err(TaskError::TooLong { .. })));
    let unknown = TaskSpec::new(ArrayId(9), KeyRange::new(0, 1), Clock(1));
    let unknown = soon(worker.pull(unknown).await.unwrap()).await;
    assert!(matches!(unknown, Err(TaskError::Submit(SubmitError::UnknownArray(_)))));
}

#[tokio::test]
async fn nonsense_at_a_servers_socket_does_not_disturb_it() {
    let cluster = Cluster::start(Tcp, Setup::new(1, 1, 1, Consistency::Bsp)).await;
    let worker = cluster.worker(0);
    count(&worker, 1..=2, 1.0, 0.0).await;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], &[0xff; 5]] {
        let mut raw = tokio::net::TcpStream::connect(cluster.address(0)).await.unwrap();
        raw.write_all(bytes).await.unwrap();
    }
    count(&worker, 3..=5, 1.0, 0.0).await;
}

#[tokio::test]
async fn rows_named_by_keys_travel_through_filters() {
    let setup = Setup {
        filters: ArrayFilters { key_lists: true, lz4: true, ..ArrayFilters::default() },
        ..Setup::new(1, 2, 1, Consistency::Eventual)
    };
    let cluster = Cluster::start(Tcp, setup).await;
    let worker = cluster.worker(0);
    let keys: Vec<u64> = (0..KEYS).step_by(2).collect();
    let count = keys.len() * WIDTH;
    for clock in 1..=3 {
        let named = spec(clock).keys(Keys::List(keys.clone().into()));
        let values = Values::from(vec![1.0; count]);
        soon(worker.push(named.clone(), values).await.unwrap()).await.unwrap();
        let pulled = soon(worker.pull(named).await.unwrap()).await.unwrap();
        assert_eq!(*pulled.values, vec![clock as f32; count]);
    }
    let all = soon(worker.pull(spec(0)).await.unwrap()).await.unwrap();
    assert_eq!(all.values.iter().sum::<f32>(), 3.0 * count as f32);
}

/// Far more is asked for than queues hold: peers wait for one another, and nothing is dropped.
#[tokio::test]
async fn large_answers_wait_for_their_receiver() {
    let setup = Setup {
        bounds: Bounds { queue: 64 * 1024, inbox: 64 * 1024, ..Bounds::default() },
        ..Setup::new(1, 1, 1, Consistency::Eventual)
    };
    let cluster = Cluster::start(Tcp, setup).await;
    let worker = cluster.worker(0);
    let mut pulls = Vec::new();
    for _ in 0..40 {
        pulls.push(worker.pull(big(0)).await.unwrap());
    }
    for pull in pulls {
        assert_eq!(soon(pull).await.unwrap().values.len(), BIG);
    }
    assert_eq!(cluster.dropped(0).await, 0);
}
