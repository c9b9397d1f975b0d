//! Trainings whose messages are filtered.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_cluster::array::FilterSpec;
use parapet_cluster::node::transport::{Memory, Tcp, Transport};
use parapet_cluster::roles::training::{NewTraining, ROW, Settled, Training};
use parapet_parameter_server::Consistency;
use parapet_parameter_server::{ArrayId, Bytes, Filter, Traffic};
use support::learning::{EXECUTORS, new, plain, start, work};
use support::{CLUSTER, Cluster, soon};
use tokio::sync::mpsc;

/// Returns the bytes that the filters of all servers saved of an array's messages: of sent ones,
/// and of received ones.
async fn traffic<T: Transport>(cluster: &Cluster<T>, array: ArrayId, filter: Filter) -> [Bytes; 2] {
    let (mut sent, mut received) = (Traffic::default(), Traffic::default());
    for counters in cluster.counters().await {
        sent.add(&counters.filtered);
        received.add(&counters.unfiltered);
    }
    [sent.of(array, filter), received.of(array, filter)]
}

/// The mean distance of a training's weights from those of plain training; with what the servers
/// have counted, by filter.
async fn train<T: Transport>(transport: T, filters: FilterSpec) -> (f32, [[Bytes; 2]; 2]) {
    const STEPS: u64 = 20;
    let cluster = Cluster::start(transport, 2, 2, Consistency::Bsp, true).await;
    let weights = start();
    let registry = cluster.open().await;
    let new = NewTraining {
        filters,
        ..new(STEPS, &weights)
    };
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new);
    let mut training = soon(begun).await.unwrap();
    let (told, _news) = mpsc::unbounded_channel();
    soon(work(&mut training, STEPS, &told)).await.unwrap();
    let (expected, _) = plain(STEPS);
    let distances = training
        .weights()
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs());
    let distance = distances.sum::<f32>() / expected.len() as f32;
    let array = training.job().array();
    let compressed = traffic(&cluster, array, Filter::Lz4).await;
    let rounded = traffic(&cluster, array, Filter::Precision).await;
    soon(training.leave()).await.unwrap();
    (distance, [compressed, rounded])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_save_bytes_and_what_is_learned_stays_about_the_same() {
    let (distance, counted) = train(Tcp, FilterSpec::NONE).await;
    assert_eq!((distance, counted), (0.0, [[Bytes::default(); 2]; 2]));

    let (distance, [[sent, received], rounded]) = train(Tcp, "lz4".parse().unwrap()).await;
    assert_eq!(
        (distance, rounded),
        (0.0, [Bytes::default(); 2]),
        "they are undone exactly"
    );
    assert!(
        sent.saved() > 0 && received.saved() > 0,
        "{sent:?} {received:?}"
    );

    let (distance, [[sent, received], [_, rounded]]) =
        train(Tcp, "lz4,bf16".parse().unwrap()).await;
    // A step of AdamW is up to 0.01 long.
    assert!(distance > 0.0 && distance < 0.001, "{distance}");
    assert!(
        sent.saved() > 0 && received.saved() > 0,
        "{sent:?} {received:?}"
    );
    assert!(
        rounded.after > 0 && rounded.before == 2 * rounded.after,
        "{rounded:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_measured_is_not_rounded() {
    let cluster = Cluster::start(Memory::default(), 2, 1, Consistency::Bsp, true).await;
    let weights = vec![0.0; 2 * ROW + 5];
    let registry = cluster.open().await;
    let filters = "f16".parse().unwrap();
    let new = NewTraining {
        filters,
        measured_from: Some(2),
        ..new(3, &weights)
    };
    let begun = Training::begin(&registry, CLUSTER, cluster.transport(), new);
    let mut training = soon(begun).await.unwrap();
    for step in 1..=3 {
        let measured = |executor: usize| 0.1 * (executor + step) as f32;
        for executor in training.to_do() {
            let learned = std::iter::repeat_n(0.1, 2 * ROW);
            let pushed = learned.chain(std::iter::repeat_n(measured(executor), 5));
            soon(training.push(executor, pushed)).await.unwrap();
        }
        assert_eq!(soon(training.settle()).await.unwrap(), Settled::Done);
        let sum = (1..EXECUTORS).fold(measured(0), |sum, executor| sum + measured(executor));
        assert_eq!(training.weights()[2 * ROW..], [sum; 5]);
    }
}
