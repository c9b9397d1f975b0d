//! A training by several workers: softmax regression on classes that a known model has drawn, by
//! stochastic gradient descent at the servers. Whether servers died or not, its loss must come out
//! the same but for the noise of batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::transport::Sockets;
use parapet_cluster::node::{Pending, TaskError, TaskSpec};
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{WorkerRole, WorkerSettings, await_array, define};
use parapet_parameter_server::{ArrayId, Clock, KeyRange, Values};
use parapet_parameter_server::{Consistency, RuleSpec, Sgd};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::{ChaosError, LIMIT};

const FEATURES: usize = 32;
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
        scores
            .iter_mut()
            .zip(row)
            .for_each(|(score, weight)| *score += feature * weight);
    }
    let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores
        .iter_mut()
        .for_each(|score| *score = (*score - greatest).exp());
    let sum: f32 = scores.iter().sum();
    scores.map(|score| score / sum)
}

/// The same for every run.
fn samples() -> Vec<Sample> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    // The sum of twelve uniform numbers has variance 1, and is as good as a normal one here.
    let normal =
        |random: &mut ChaCha8Rng| (0..12).map(|_| random.random::<f32>()).sum::<f32>() - 6.0;
    let weights: Vec<f32> = (0..FEATURES * CLASSES)
        .map(|_| 0.5 * normal(&mut random))
        .collect();
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
            row.iter_mut()
                .zip(errors)
                .for_each(|(sum, error)| *sum += part * feature * error);
        }
    }
    sum
}

/// The mean cross-entropy of what was held out.
fn loss(samples: &[Sample], weights: &[f32]) -> f64 {
    let held_out = samples.get(..HELD_OUT).unwrap_or_default();
    let of = |sample: &Sample| {
        let found = probabilities(&sample.features, weights)
            .get(sample.class)
            .copied()
            .unwrap_or(0.0);
        -f64::from(found.max(f32::MIN_POSITIVE)).ln()
    };
    held_out.iter().map(of).sum::<f64>() / held_out.len() as f64
}

/// Workers that can train together, again and again.
pub(super) struct Learners {
    workers: Vec<Arc<WorkerRole>>,
    samples: Arc<Vec<Sample>>,
}

/// When a worker has had enough.
#[derive(Clone)]
enum Until {
    Stopped(Arc<AtomicBool>),
    Steps(u64),
}

/// A training under way.
pub(super) struct Learning {
    workers: Vec<Arc<WorkerRole>>,
    samples: Arc<Vec<Sample>>,
    stop: Arc<AtomicBool>,
    steps: JoinSet<Result<u64, ChaosError>>,
}

impl Learners {
    /// Joins, for one training here and so many more.
    pub(super) async fn start(
        registry: &Registry,
        cluster: &str,
        more: u64,
    ) -> Result<Self, ChaosError> {
        let last = FIRST + u32::try_from(more).unwrap_or(0);
        let arrays: Vec<_> = (FIRST..=last).map(|array| (ArrayId(array), SPEC)).collect();
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let settings = WorkerSettings::new(cluster, arrays.clone());
            workers.push(Arc::new(
                WorkerRole::join(registry, settings, Sockets).await?,
            ));
        }
        let learners = Self {
            workers,
            samples: Arc::new(samples()),
        };
        begin(registry, ArrayId(FIRST)).await?;
        Ok(learners)
    }

    /// Trains, a step in each `pace`, in the background.
    pub(super) fn learn_until_stopped(&self, seed: u64, pace: Duration) -> Learning {
        let stop = Arc::new(AtomicBool::new(false));
        let steps = self.spawn(
            ArrayId(FIRST),
            seed,
            Some(pace),
            &Until::Stopped(Arc::clone(&stop)),
        );
        Learning {
            workers: self.workers.clone(),
            samples: Arc::clone(&self.samples),
            stop,
            steps,
        }
    }

    /// Trains on an array of its own, with so many steps of each worker; the loss in the end.
    pub(super) async fn learn(
        &self,
        registry: &Registry,
        seed: u64,
        steps: u64,
    ) -> Result<f64, ChaosError> {
        let known = registry
            .view()
            .borrow()
            .arrays
            .keys()
            .filter(|array| array.0 >= FIRST)
            .count();
        let array = ArrayId(FIRST + u32::try_from(known).unwrap_or(0));
        begin(registry, array).await?;
        join(self.spawn(array, seed, None, &Until::Steps(steps / WORKERS))).await?;
        final_loss(&self.workers, &self.samples, array).await
    }

    fn spawn(
        &self,
        array: ArrayId,
        seed: u64,
        pace: Option<Duration>,
        until: &Until,
    ) -> JoinSet<Result<u64, ChaosError>> {
        let mut steps = JoinSet::new();
        for (number, worker) in (0..).zip(&self.workers) {
            let random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000) + number);
            let (worker, samples) = (Arc::clone(worker), Arc::clone(&self.samples));
            steps.spawn(learn(worker, samples, array, random, pace, until.clone()));
        }
        steps
    }
}

impl Learning {
    /// Ends it: the steps of all workers, and the loss.
    pub(super) async fn stop(self) -> Result<(u64, f64), ChaosError> {
        self.stop.store(true, Ordering::Relaxed);
        let steps = join(self.steps).await?;
        Ok((
            steps,
            final_loss(&self.workers, &self.samples, ArrayId(FIRST)).await?,
        ))
    }
}

async fn begin(registry: &Registry, array: ArrayId) -> Result<(), ChaosError> {
    define(
        registry,
        array,
        KeyRange::new(0, FEATURES as u64),
        SHARDS,
        &SPEC,
    )
    .await?;
    Ok(await_array(registry, array, LIMIT).await?)
}

/// All that they have done.
async fn join(mut steps: JoinSet<Result<u64, ChaosError>>) -> Result<u64, ChaosError> {
    let mut sum = 0;
    while let Some(done) = steps.join_next().await {
        sum += done.map_err(|error| ChaosError::Hangs(error.to_string()))??;
    }
    Ok(sum)
}

async fn final_loss(
    workers: &[Arc<WorkerRole>],
    samples: &[Sample],
    array: ArrayId,
) -> Result<f64, ChaosError> {
    let Some(worker) = workers.first() else {
        return Ok(f64::NAN);
    };
    let pulled = soon(0, worker.worker().pull(all(array, 0)).await).await?;
    Ok(loss(samples, &pulled.values))
}

async fn learn(
    worker: Arc<WorkerRole>,
    samples: Arc<Vec<Sample>>,
    array: ArrayId,
    mut random: ChaCha8Rng,
    pace: Option<Duration>,
    until: Until,
) -> Result<u64, ChaosError> {
    let mut pace = pace.map(interval);
    let mut step = 0;
    let mut weights = soon(0, worker.worker().pull(all(array, 0)).await)
        .await?
        .values;
    let goes_on = |step| match &until {
        Until::Stopped(stop) => !stop.load(Ordering::Relaxed),
        Until::Steps(steps) => step < *steps,
    };
    while goes_on(step) {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        step += 1;
        let trained = samples.get(HELD_OUT..).unwrap_or_default();
        let drawn = (0..BATCH).map(|_| random.random_range(0..trained.len()));
        let batch: Vec<&Sample> = drawn.filter_map(|place| trained.get(place)).collect();
        let values = Values::from(gradient(batch.into_iter(), &weights));
        let both = worker.worker().push_pull(all(array, step), values).await;
        let both = both.map_err(|error| ChaosError::Task { clock: step, error })?;
        soon(step, Ok(both.push)).await?;
        weights = soon(step, Ok(both.pull)).await?.values;
    }
    Ok(step)
}

async fn soon<R>(clock: u64, pending: Result<Pending<R>, TaskError>) -> Result<R, ChaosError> {
    let failed = |error| ChaosError::Task { clock, error };
    let done = timeout(LIMIT, pending.map_err(failed)?).await;
    done.map_err(|_| ChaosError::Hangs(format!("step {clock} of the training")))?
        .map_err(failed)
}

fn all(array: ArrayId, clock: u64) -> TaskSpec {
    TaskSpec::new(array, KeyRange::new(0, FEATURES as u64), Clock(clock))
}
