//! Trainings whose messages are filtered.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use parapet_cluster::node::Transport;
use parapet_cluster::roles::training::{NewTraining, ROW, Settled};
use parapet_parameter_server::{Bytes, Filter, Traffic};
use support::learning::{EXECUTORS, begin, new, plain, start, worked};
use support::{Cluster, soon};

const NOTHING: [Bytes; 2] = [Bytes { before: 0, after: 0 }; 2];

/// The mean distance of a training's weights from those of plain training; with the bytes of sent
/// and received messages that all servers have counted, by filter.
async fn train(filters: &str) -> (f32, [[Bytes; 2]; 2]) {
    const STEPS: u64 = 20;
    let cluster = Cluster::for_training(Transport::Tcp).await;
    let weights = start();
    let new = NewTraining { filters: filters.parse().unwrap(), ..new(STEPS, &weights) };
    let training = begin(&cluster, &cluster.open().await, new).await;
    let training = worked(training, STEPS).await;
    let (expected, _) = plain(STEPS);
    let pairs = training.weights().iter().zip(&expected);
    let distances = pairs.map(|(a, b)| (a - b).abs());
    let distance = distances.sum::<f32>() / expected.len() as f32;
    let (mut sent, mut received) = (Traffic::default(), Traffic::default());
    for counters in cluster.counters().await {
        sent.add(&counters.filtered);
        received.add(&counters.unfiltered);
    }
    let array = training.job().array();
    let counted = [Filter::Lz4, Filter::Precision]
        .map(|filter| [sent.of(array, filter), received.of(array, filter)]);
    soon(training.leave()).await.unwrap();
    (distance, counted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_save_bytes_and_the_outcome_stays_about_the_same() {
    assert_eq!(train("none").await, (0.0, [NOTHING; 2]));

    let (distance, [compressed, rounded]) = train("lz4").await;
    assert_eq!((distance, rounded), (0.0, NOTHING), "they are undone exactly");
    assert!(compressed.iter().all(|bytes| bytes.after < bytes.before), "{compressed:?}");

    let (distance, [compressed, [_, rounded]]) = train("lz4,bf16").await;
    // Pieces of a gradient have no row of one another; some may be sent twice on a busy machine.
    let once = (20 * EXECUTORS * 3 * ROW * size_of::<f32>()) as u64;
    assert!((once..once + once / 4).contains(&rounded.before), "{rounded:?}, {once} once");
    // A step of AdamW is up to 0.01 long.
    assert!(distance > 0.0 && distance < 0.001, "{distance}");
    assert!(compressed.iter().all(|bytes| bytes.after < bytes.before), "{compressed:?}");
    assert!(rounded.after > 0 && rounded.before == 2 * rounded.after, "{rounded:?}");
}

#[tokio::test(start_paused = true)]
async fn measured_rows_are_not_rounded() {
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = vec![0.0; 2 * ROW + 5];
    let new =
        NewTraining { filters: "f16".parse().unwrap(), measured_from: Some(2), ..new(3, &weights) };
    let mut training = begin(&cluster, &cluster.open().await, new).await;
    for step in 1..=3 {
        let measured = |executor: usize| 0.1 * (executor + step) as f32;
        for executor in training.to_do() {
            let learned = std::iter::repeat_n(0.1, 2 * ROW);
            let pushed = learned.chain(std::iter::repeat_n(measured(executor), 5));
            soon(training.push(executor, 0, pushed)).await.unwrap();
        }
        assert_eq!(soon(training.settle()).await.unwrap(), Settled::Done);
        let sum = (1..EXECUTORS).fold(measured(0), |sum, executor| sum + measured(executor));
        assert_eq!(training.weights()[2 * ROW..], [sum; 5]);
    }
}
