//! Trainings with a layer whose gradients are sent as factors.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use parapet_cluster::node::Transport;
use parapet_cluster::roles::training::{NewTraining, Settled, Training};
use parapet_parameter_server::{Factors, Values};
use support::learning::{begin, gradient, join, new};
use support::{Cluster, soon};

const RANK: usize = 2;
/// Rows, columns and place of the factored layer, which begins and ends within rows of the array.
const LAYER: [usize; 3] = [60, 50, 37];
const FACTORED: usize = LAYER[2] + LAYER[0] * LAYER[1] + 91;

/// The gradient of an executor's part, and that of the layer as factors. Both depend on all weights.
fn factored(weights: &[f32], executor: usize, step: u64) -> (Vec<f32>, Factors) {
    let [rows, columns, at] = LAYER;
    let mut dense = gradient(weights, executor, step);
    let salt = weights.iter().sum::<f32>() + executor as f32 + step as f32;
    let numbers = |count: usize, factor: f32| {
        Vec::from_iter((0..count).map(|i| (i as f32 * factor + salt).sin()))
    };
    let factors = Factors::new(RANK, &numbers(rows * RANK, 0.3), &numbers(RANK * columns, 0.7));
    let product = Values::Factors(factors.clone()).to_f32();
    dense[at..at + product.len()].copy_from_slice(&product);
    (dense, factors)
}

/// Steps of this process's executors. Returns the steps after which it kept the layer up itself.
async fn factored_steps(training: &mut Training, steps: u64, as_factors: bool) -> u64 {
    let mut mirrored = 0;
    while training.steps_done() < steps {
        loop {
            let step = training.steps_done();
            for executor in training.to_do() {
                let (dense, factors) = factored(training.weights(), executor, step);
                let factors = as_factors.then_some((LAYER[2], factors));
                let pushed = training.push_factors(
                    executor,
                    0,
                    dense.into_iter(),
                    factors.into_iter().collect(),
                );
                soon(pushed).await.unwrap();
            }
            if soon(training.settle()).await.unwrap() == Settled::Done {
                break;
            }
        }
        mirrored += u64::from(training.is_mirroring());
    }
    mirrored
}

#[tokio::test(start_paused = true)]
async fn layer_as_factors_is_learned_alike_by_one_process_or_many() {
    const STEPS: u64 = 12;
    let cluster = Cluster::for_training(Transport::memory()).await;
    let weights = Vec::from_iter((0..FACTORED).map(|index| (index as f32 * 0.37).sin()));
    let mut models = Vec::new();
    for (hosts, as_factors) in [(1, false), (1, true), (3, true)] {
        let layer = LAYER[2]..LAYER[2] + LAYER[0] * LAYER[1];
        let layers = std::slice::from_ref(&layer);
        let new = NewTraining { factors: as_factors, layers, ..new(STEPS, &weights) };
        let leading = begin(&cluster, &cluster.open().await, new).await;
        // The servers are two.
        assert_eq!(leading.shards(layer.clone()), if as_factors { 2 } else { 3 });
        let mut all = vec![leading];
        let job = all[0].job().clone();
        for _ in 1..hosts {
            all.push(join(&cluster, &cluster.open().await, &job).await.unwrap());
        }
        cluster.until(|view| view.present_workers.len() == hosts).await;
        let working = all.into_iter().map(|mut training| {
            tokio::spawn(async move {
                let mirrored = factored_steps(&mut training, STEPS, as_factors).await;
                (training, mirrored)
            })
        });
        let mut found = Vec::new();
        for process in Vec::from_iter(working) {
            let (training, mirrored) = soon(process).await.unwrap();
            assert_eq!(mirrored > STEPS / 2, as_factors, "{mirrored} steps");
            found.push(training.weights().to_vec());
            soon(training.leave()).await.unwrap();
        }
        assert!(found.iter().all(|weights| *weights == found[0]), "{hosts} processes");
        cluster.until(|view| view.job.is_none() && view.present_workers.is_empty()).await;
        models.append(&mut found);
    }
    assert_eq!(models[1], models[2]);
    for (dense, factored) in models[0].iter().zip(&models[1]) {
        assert!((dense - factored).abs() < 1e-4, "{dense} and {factored}");
    }
}
