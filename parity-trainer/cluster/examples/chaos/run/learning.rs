//! A training by several workers: linear regression on what a known model and noise have drawn, by
//! stochastic gradient descent at the servers. Whether servers died or not, its loss must come out
//! the same but for the noise of batches.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::{TaskSpec, Worker};
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{await_array, define};
use parapet_parameter_server::{ArrayId, Clock, Consistency, KeyRange, RuleSpec, Sgd, Values};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use super::{LIMIT, soon, worker};

const FEATURES: usize = 32;
const KEYS: KeyRange = KeyRange::new(0, FEATURES as u64);
const SHARDS: u64 = 4;
const WORKERS: u64 = 2;
const SAMPLES: usize = 8192;
/// Of those, not trained on.
const HELD_OUT: usize = 4096;
const BATCH: usize = 32;
/// The disturbed training's array; the others' follow.
const FIRST: u32 = 2;

const SPEC: ArraySpec = ArraySpec {
    width: 1,
    sparse: false,
    rule: RuleSpec::Sgd(Sgd { rate: 0.05, decay: 0.0 }),
    consistency: Consistency::Eventual,
    filters: FilterSpec::NONE,
};

struct Sample {
    features: [f32; FEATURES],
    target: f32,
}

impl Sample {
    fn error(&self, weights: &[f32]) -> f32 {
        let products = self.features.iter().zip(weights).map(|(x, w)| x * w);
        products.sum::<f32>() - self.target
    }
}

/// The same for every run.
fn samples() -> Vec<Sample> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    // The sum of twelve uniform numbers has variance 1, and is as good as a normal one here.
    let mut normal = || (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
    let weights: [f32; FEATURES] = std::array::from_fn(|_| normal());
    let mut sample = || {
        let features: [f32; FEATURES] = std::array::from_fn(|_| normal());
        let mut sample = Sample { features, target: 0.0 };
        sample.target = sample.error(&weights) + normal();
        sample
    };
    (0..SAMPLES).map(|_| sample()).collect()
}

/// The mean squared error of what was held out.
fn loss(samples: &[Sample], weights: &[f32]) -> f64 {
    let held_out = samples.iter().take(HELD_OUT);
    let squares = held_out.map(|sample| f64::from(sample.error(weights)).powi(2));
    squares.sum::<f64>() / HELD_OUT as f64
}

/// Workers that can train together, again and again.
pub(super) struct Learners {
    workers: Vec<Worker>,
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
        let arrays = Vec::from_iter((FIRST..=last).map(|array| (ArrayId(array), SPEC.client())));
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            workers.push(worker(registry, cluster, arrays.clone()).await?);
        }
        let samples = Arc::new(samples());
        Ok(Self { workers, samples })
    }

    /// Begins training number 0, 1, .. on an array of its own: a step in each `pace`, `limit` steps
    /// of each worker.
    pub(super) async fn begin(
        &self,
        registry: &Registry,
        number: u32,
        seed: u64,
        pace: Option<Duration>,
        limit: u64,
    ) -> Result<Learning> {
        let array = ArrayId(FIRST + number);
        define(registry, array, KEYS, KEYS.cut(SHARDS).collect(), &SPEC).await?;
        await_array(registry, array, LIMIT).await?;
        let stop = CancellationToken::new();
        let mut steps = JoinSet::new();
        for (number, worker) in (0..).zip(&self.workers) {
            let task = Learner {
                worker: worker.clone(),
                samples: Arc::clone(&self.samples),
                array,
                random: ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000) + number),
                stop: stop.clone(),
            };
            steps.spawn(task.learn(pace, limit / WORKERS));
        }
        Ok(Learning { array, stop, steps })
    }

    /// Waits for the end of a training: the steps of all workers, and the loss.
    pub(super) async fn end(&self, mut learning: Learning) -> Result<(u64, f64)> {
        let mut steps = 0;
        while let Some(done) = learning.steps.join_next().await {
            steps += done??;
        }
        let worker = self.workers.first().context("there are no workers")?;
        let weights = worker.pull(all(learning.array, 0)).await;
        let weights = soon("the last pull", weights).await?.values;
        Ok((steps, loss(&self.samples, &weights)))
    }
}

impl Learning {
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

/// One worker's part of a training.
struct Learner {
    worker: Worker,
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
        let pull = self.worker.pull(all(self.array, 0)).await;
        let mut weights = soon("the first pull", pull).await?.values;
        while step < limit && !self.stop.is_cancelled() {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            step += 1;
            let values = Values::from(self.gradient(&weights));
            let what = format!("step {step} of the training");
            let push = self.worker.push(all(self.array, step), values).await;
            soon(&what, push).await?;
            let pull = self.worker.pull(all(self.array, step + 1)).await;
            weights = soon(&what, pull).await?.values;
        }
        Ok(step)
    }

    /// The mean gradient of a drawn batch.
    fn gradient(&mut self, weights: &[f32]) -> Vec<f32> {
        let mut sum = vec![0.0; FEATURES];
        for _ in 0..BATCH {
            let drawn = self.random.random_range(HELD_OUT..SAMPLES);
            let Some(sample) = self.samples.get(drawn) else {
                continue;
            };
            let error = sample.error(weights) / BATCH as f32;
            let parts = sum.iter_mut().zip(sample.features);
            parts.for_each(|(sum, feature)| *sum += error * feature);
        }
        sum
    }
}

fn all(array: ArrayId, clock: u64) -> TaskSpec {
    TaskSpec::new(array, KEYS, Clock(clock))
}
