//! A training by several workers: softmax regression on classes that a known model has drawn, by
//! stochastic gradient descent at the servers. Whether servers died or not, its loss must come out
//! the same but for the noise of batches.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::TaskSpec;
use parapet_cluster::node::transport::Sockets;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{WorkerRole, await_array, define};
use parapet_parameter_server::{ArrayId, Clock, Consistency, KeyRange, RuleSpec, Sgd, Values};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::{LIMIT, soon};

const FEATURES: usize = 32;
const KEYS: KeyRange = KeyRange::new(0, FEATURES as u64);
const CLASSES: usize = 10;
const SHARDS: u64 = 4;
const WORKERS: u64 = 2;
const SAMPLES: usize = 8192;
/// Of those, not trained on.
const HELD_OUT: usize = 4096;
const BATCH: usize = 32;
const RATE: f32 = 0.05;
/// The disturbed training's array; the others' follow.
const FIRST: u32 = 2;

const SPEC: ArraySpec = ArraySpec {
    width: CLASSES,
    sparse: false,
    rule: RuleSpec::Sgd(Sgd {
        rate: RATE,
        decay: 0.0,
    }),
    consistency: Consistency::Eventual,
    filters: FilterSpec::NONE,
};

/// Features, and which class was drawn.
struct Sample {
    features: [f32; FEATURES],
    class: usize,
}

/// Softmax of `features x weights`, the weights as `FEATURES x CLASSES`.
fn probabilities(features: &[f32; FEATURES], weights: &[f32]) -> [f32; CLASSES] {
    let mut scores = [0.0; CLASSES];
    for (feature, row) in features.iter().zip(weights.chunks_exact(CLASSES)) {
        let scores = scores.iter_mut().zip(row);
        scores.for_each(|(score, weight)| *score += feature * weight);
    }
    let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scores = scores.map(|score| (score - greatest).exp());
    let sum: f32 = scores.iter().sum();
    scores.map(|score| score / sum)
}

/// The same for every run.
fn samples() -> Vec<Sample> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    // The sum of twelve uniform numbers has variance 1, and is as good as a normal one here.
    let normal =
        |random: &mut ChaCha8Rng| (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
    let weights = (0..FEATURES * CLASSES).map(|_| 0.5 * normal(&mut random));
    let weights = Vec::from_iter(weights);
    let sample = |_| {
        let features = std::array::from_fn(|_| normal(&mut random));
        let mut left: f32 = random.random();
        let drawn = probabilities(&features, &weights).iter().position(|&part| {
            left -= part;
            left < 0.0
        });
        Sample {
            features,
            class: drawn.unwrap_or(CLASSES - 1),
        }
    };
    (0..SAMPLES).map(sample).collect()
}

/// The mean gradient of a batch.
fn gradient<'a>(batch: impl ExactSizeIterator<Item = &'a Sample>, weights: &[f32]) -> Vec<f32> {
    let part = 1.0 / batch.len() as f32;
    let mut sum = vec![0.0; FEATURES * CLASSES];
    for Sample { features, class } in batch {
        let mut errors = probabilities(features, weights);
        if let Some(own) = errors.get_mut(*class) {
            *own -= 1.0;
        }
        for (feature, row) in features.iter().zip(sum.chunks_exact_mut(CLASSES)) {
            let row = row.iter_mut().zip(errors);
            row.for_each(|(sum, error)| *sum += part * feature * error);
        }
    }
    sum
}

/// The mean cross-entropy of what was held out.
fn loss(samples: &[Sample], weights: &[f32]) -> f64 {
    let held_out = samples.get(..HELD_OUT).unwrap_or_default();
    let of = |sample: &Sample| {
        let found = probabilities(&sample.features, weights);
        let found = found.get(sample.class).copied().unwrap_or(0.0);
        -f64::from(found.max(f32::MIN_POSITIVE)).ln()
    };
    held_out.iter().map(of).sum::<f64>() / held_out.len() as f64
}

/// Workers that can train together, again and again.
pub(super) struct Learners {
    workers: Vec<Arc<WorkerRole>>,
    samples: Arc<Vec<Sample>>,
}

/// A training under way, with its array.
pub(super) struct Learning {
    array: ArrayId,
    stop: CancellationToken,
    steps: JoinSet<Result<u64>>,
}

impl Learners {
    /// Joins, for one training here and so many more.
    pub(super) async fn start(registry: &Registry, cluster: &str, more: u64) -> Result<Self> {
        let last = FIRST + u32::try_from(more)?;
        let arrays = Vec::from_iter((FIRST..=last).map(|array| (ArrayId(array), SPEC)));
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let worker = WorkerRole::join(registry, cluster, Sockets, Clock(0), &arrays).await?;
            workers.push(Arc::new(worker));
        }
        begin(registry, ArrayId(FIRST)).await?;
        let samples = Arc::new(samples());
        Ok(Self { workers, samples })
    }

    /// Trains, a step in each `pace`, in the background.
    pub(super) fn learn_until_stopped(&self, seed: u64, pace: Duration) -> Learning {
        self.spawn(ArrayId(FIRST), seed, Some(pace), u64::MAX)
    }

    /// Trains on an array of its own, with so many steps of each worker; the loss in the end.
    pub(super) async fn learn(&self, registry: &Registry, seed: u64, steps: u64) -> Result<f64> {
        let view = Arc::clone(&registry.view().borrow());
        let known = view.arrays.keys().filter(|array| array.0 >= FIRST).count();
        let array = ArrayId(FIRST + u32::try_from(known)?);
        begin(registry, array).await?;
        let (_, loss) = self
            .join(self.spawn(array, seed, None, steps / WORKERS))
            .await?;
        Ok(loss)
    }

    /// Ends a training: the steps of all workers, and the loss.
    pub(super) async fn stop(&self, learning: Learning) -> Result<(u64, f64)> {
        learning.stop.cancel();
        self.join(learning).await
    }

    async fn join(&self, mut learning: Learning) -> Result<(u64, f64)> {
        let mut steps = 0;
        while let Some(done) = learning.steps.join_next().await {
            steps += done??;
        }
        let worker = self.workers.first().context("there are no workers")?;
        let weights = worker.worker.pull(all(learning.array, 0)).await;
        let weights = soon("the last pull", weights).await?.values;
        Ok((steps, loss(&self.samples, &weights)))
    }

    fn spawn(&self, array: ArrayId, seed: u64, pace: Option<Duration>, limit: u64) -> Learning {
        let stop = CancellationToken::new();
        let mut steps = JoinSet::new();
        for (number, worker) in (0..).zip(&self.workers) {
            let task = Learner {
                worker: Arc::clone(worker),
                samples: Arc::clone(&self.samples),
                array,
                random: ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000) + number),
                stop: stop.clone(),
            };
            steps.spawn(task.learn(pace, limit));
        }
        Learning { array, stop, steps }
    }
}

/// One worker's part of a training.
struct Learner {
    worker: Arc<WorkerRole>,
    samples: Arc<Vec<Sample>>,
    array: ArrayId,
    random: ChaCha8Rng,
    stop: CancellationToken,
}

impl Learner {
    /// Trains until it is stopped, or for so many steps; returns how many it has done.
    async fn learn(mut self, pace: Option<Duration>, limit: u64) -> Result<u64> {
        let mut pace = pace.map(interval);
        let mut step = 0;
        let pull = self.worker.worker.pull(all(self.array, 0)).await;
        let mut weights = soon("the first pull", pull).await?.values;
        let trained = self.samples.get(HELD_OUT..).unwrap_or_default();
        while step < limit && !self.stop.is_cancelled() {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            step += 1;
            let drawn = (0..BATCH).map(|_| self.random.random_range(0..trained.len()));
            let batch = Vec::from_iter(drawn.filter_map(|place| trained.get(place)));
            let values = Values::from(gradient(batch.into_iter(), &weights));
            let what = format!("step {step} of the training");
            let push = self.worker.worker.push(all(self.array, step), values).await;
            soon(&what, push).await?;
            let pull = self.worker.worker.pull(all(self.array, step + 1)).await;
            weights = soon(&what, pull).await?.values;
        }
        Ok(step)
    }
}

async fn begin(registry: &Registry, array: ArrayId) -> Result<()> {
    define(registry, array, KEYS, SHARDS, &SPEC).await?;
    Ok(await_array(registry, array, LIMIT).await?)
}

fn all(array: ArrayId, clock: u64) -> TaskSpec {
    TaskSpec::new(array, KEYS, Clock(clock))
}
