//! One run: until the loss is reached.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parapet_cluster::node::transport::Tcp;
use parapet_cluster::node::{Pending, TaskError, TaskSpec, Worker};
use parapet_parameter_server::{Clock, Consistency, Layout, Sgd, Values};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Barrier, watch};
use tokio::task::JoinError;
use tokio::time::MissedTickBehavior;

use super::Injection;
use crate::cluster::StartError;
use crate::data::{DataSet, Generated, generate};
use crate::{ARRAY, Batches, Cluster, ClusterSettings, Minibatch, Rows, logistic};

/// Interval at which the loss is evaluated.
const LOOKS: Duration = Duration::from_millis(10);

/// Pushes that are not acknowledged yet, before a worker waits for the oldest.
const PUSHES: usize = 64;

/// The part of a loss by which sums in another order may differ.
const ROUNDING: f64 = 1e-6;

/// A computation that ends later than this after its time counts as late.
const LATE: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Experiment {
    /// Consistency model of the workers.
    pub(crate) consistency: Consistency,
    /// Injected slowness, and the number of workers.
    pub(crate) injection: Injection,
    pub(crate) servers: u64,
    /// Time that a minibatch takes without slowdown.
    pub(crate) compute: Duration,
    /// The loss to reach is that of bulk-synchronous workers after so many clocks.
    pub(crate) clocks: usize,
    /// After how long a run is given up.
    pub(crate) patience: Duration,
    /// Rows of a minibatch.
    pub(crate) batch: usize,
    /// The learning rate, for the mean gradient of all workers.
    pub(crate) rate: f32,
    /// The rows; its seed is also that of their order.
    pub(crate) data: Generated,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// The held-out loss to reach.
    pub(crate) target: f64,
    /// Seconds until it was; `None` if the run was given up.
    pub(crate) seconds: Option<f64>,
    /// Minibatches that all workers had computed by then.
    pub(crate) minibatches: u64,
    /// The share of the workers' time in which they waited for servers.
    pub(crate) idle: f64,
    /// The share of minibatches whose computation ended late: those that met busy processors.
    pub(crate) late: f64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RaceError {
    /// There are no servers.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A push or a pull failed.
    #[error("{0}")]
    Task(#[from] TaskError),
    /// A worker ended by itself.
    #[error("a worker ended in the middle of its work: {0}")]
    Worker(#[from] JoinError),
}

/// Work of a worker until it was stopped.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    minibatches: u64,
    late: u64,
    idle: Duration,
    all: Duration,
}

/// Runs it. To be called within a runtime of several threads.
///
/// # Errors
/// [`RaceError`].
pub(crate) async fn race(experiment: Experiment) -> Result<Measured, RaceError> {
    let data = Arc::new(generate(&experiment.data));
    let target = target(&data, &experiment);
    let workers = experiment.injection.workers.max(1);
    let settings = ClusterSettings {
        servers: experiment.servers.max(1),
        replicas: 1,
        workers: workers as u64,
        keys: data.keys(),
        layout: Layout::dense(
            1,
            Sgd {
                rate: experiment.rate,
                decay: 0.0,
            },
        ),
        consistency: experiment.consistency,
        key_lists: false,
    };
    let cluster = Cluster::start(settings, Tcp).await?;
    let (stop, stopped) = watch::channel(false);
    let ready = Arc::new(Barrier::new(workers + 1));
    let running: Vec<_> = (0..workers)
        .map(|number| {
            let racer = Racer {
                number,
                worker: cluster.worker(number as u64),
                data: Arc::clone(&data),
                experiment,
                stop: stopped.clone(),
                pushes: VecDeque::new(),
                tally: Tally::default(),
            };
            let (ready, runtime) = (Arc::clone(&ready), Handle::current());
            // A thread of its own: it sleeps there.
            tokio::task::spawn_blocking(move || runtime.block_on(racer.run(&ready)))
        })
        .collect();
    let seconds = watch_loss(
        &cluster.reader(),
        &data,
        target,
        experiment.patience,
        &ready,
    )
    .await;
    stop.send_replace(true);
    let mut all = Tally::default();
    for worker in running {
        let tally = worker.await??;
        all.minibatches += tally.minibatches;
        all.late += tally.late;
        all.idle += tally.idle;
        all.all += tally.all;
    }
    Ok(Measured {
        target,
        seconds: seconds?,
        minibatches: all.minibatches,
        idle: all.idle.as_secs_f64() / all.all.as_secs_f64().max(f64::MIN_POSITIVE),
        late: all.late as f64 / all.minibatches.max(1) as f64,
    })
}

/// Seconds until the loss is reached.
async fn watch_loss(
    reader: &Worker,
    data: &DataSet,
    target: f64,
    patience: Duration,
    ready: &Barrier,
) -> Result<Option<f64>, TaskError> {
    let everything = || TaskSpec::new(ARRAY, data.keys(), Clock(0));
    reader.pull(everything()).await?.await?;
    ready.wait().await;
    let begun = Instant::now();
    let mut looks = tokio::time::interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while begun.elapsed() < patience {
        looks.tick().await;
        let pulled = reader.pull(everything()).await?.await?;
        let seconds = begun.elapsed().as_secs_f64();
        if loss(&data.held_out, &pulled.values) <= target * (1.0 + ROUNDING) {
            return Ok(Some(seconds));
        }
    }
    Ok(None)
}

fn loss(rows: &Rows, weights: &[f32]) -> f64 {
    let weight = |feature: u32| {
        weights
            .get(usize::try_from(feature).unwrap_or(usize::MAX))
            .copied()
            .unwrap_or_default()
    };
    let losses = rows
        .iter()
        .map(|row| logistic::log_loss(logistic::probability(row, weight), row.label));
    losses.sum::<f64>() / rows.len().max(1) as f64
}

fn batches(data: &DataSet, experiment: &Experiment, worker: usize) -> Batches {
    let workers = experiment.injection.workers.max(1);
    let (rows, batch, seed) = (
        data.train.len(),
        experiment.batch.max(1),
        experiment.data.seed,
    );
    Batches::new(rows, batch, workers, worker, usize::MAX, seed)
}

/// One number for each weight: this worker's part of the mean gradient of all.
fn scaled_gradient(data: &DataSet, places: &[u32], weights: &[f32], workers: usize) -> Vec<f32> {
    let batch = Minibatch::new(&data.train, places);
    let at = |key: u64| usize::try_from(key).unwrap_or(usize::MAX);
    let own: Vec<f32> = batch
        .keys()
        .iter()
        .map(|&key| weights.get(at(key)).copied().unwrap_or_default())
        .collect();
    let scale = 1.0 / (places.len().max(1) * workers.max(1)) as f32;
    let mut gradient = vec![0.0; weights.len()];
    for (&key, sum) in batch
        .keys()
        .iter()
        .zip(logistic::gradient(&batch, &own).sums)
    {
        if let Some(place) = gradient.get_mut(at(key)) {
            *place = sum * scale;
        }
    }
    gradient
}

/// The loss after the clocks of bulk-synchronous workers, computed here.
fn target(data: &DataSet, experiment: &Experiment) -> f64 {
    let workers = experiment.injection.workers.max(1);
    let mut all: Vec<Batches> = (0..workers)
        .map(|worker| batches(data, experiment, worker))
        .collect();
    let mut weights = vec![0.0_f32; usize::try_from(data.keys().len()).unwrap_or_default()];
    for _ in 0..experiment.clocks {
        let places: Vec<Vec<u32>> = all.iter_mut().filter_map(Iterator::next).collect();
        let gradients: Vec<Vec<f32>> = places
            .iter()
            .map(|places| scaled_gradient(data, places, &weights, workers))
            .collect();
        for gradient in gradients {
            weights
                .iter_mut()
                .zip(gradient)
                .for_each(|(weight, g)| *weight -= experiment.rate * g);
        }
    }
    loss(&data.held_out, &weights)
}

struct Racer {
    number: usize,
    worker: Worker,
    data: Arc<DataSet>,
    experiment: Experiment,
    stop: watch::Receiver<bool>,
    pushes: VecDeque<Pending<()>>,
    tally: Tally,
}

impl Racer {
    async fn run(mut self, ready: &Barrier) -> Result<Tally, TaskError> {
        let everything = |clock| TaskSpec::new(ARRAY, self.data.keys(), clock);
        self.worker.pull(everything(Clock(0))).await?.await?;
        ready.wait().await;
        let begun = Instant::now();
        let Experiment {
            injection, compute, ..
        } = self.experiment;
        let batches = batches(&self.data, &self.experiment, self.number);
        let mut clock = Clock(0);
        for places in batches {
            clock = clock.next();
            let spec = TaskSpec::new(ARRAY, self.data.keys(), clock);
            let asked = Instant::now();
            let pull = self.worker.pull(spec.clone()).await?;
            let pulled = tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => None,
                pulled = pull => Some(pulled?),
            };
            self.tally.idle += asked.elapsed();
            let Some(pulled) = pulled else { break };
            let started = begun.elapsed();
            let gradient = scaled_gradient(&self.data, &places, &pulled.values, injection.workers);
            let end = injection.end(self.number, started, compute);
            std::thread::sleep(end.saturating_sub(begun.elapsed()));
            if *self.stop.borrow() {
                break;
            }
            self.tally.late += u64::from(begun.elapsed() > end + LATE);
            self.tally.minibatches += 1;
            let asked = Instant::now();
            self.pushes
                .push_back(self.worker.push(spec, Values::from(gradient)).await?);
            if self.pushes.len() > PUSHES
                && let Some(oldest) = self.pushes.pop_front()
            {
                tokio::select! {
                    biased;
                    _ = self.stop.wait_for(|stop| *stop) => break,
                    pushed = oldest => pushed?,
                }
            }
            self.tally.idle += asked.elapsed();
        }
        self.tally.all = begun.elapsed();
        Ok(self.tally)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::staleness::Slowdown;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bulk_synchronous_workers_reach_the_loss_after_its_clocks() {
        let data = Generated {
            features: 500,
            rows: 4_000,
            held_out: 1_000,
            draws: 30,
            seed: 1,
        };
        let injection = Injection {
            slowdown: Slowdown::Never,
            workers: 2,
            factor: 4.0,
            seed: 1,
        };
        let experiment = Experiment {
            consistency: Consistency::Bsp,
            injection,
            servers: 2,
            compute: Duration::from_millis(20),
            clocks: 12,
            patience: Duration::from_secs(30),
            batch: 200,
            rate: 0.2,
            data,
        };
        let set = generate(&data);
        let after = |clocks| {
            target(
                &set,
                &Experiment {
                    clocks,
                    ..experiment
                },
            )
        };
        assert!(
            after(12) < after(6) && after(6) < after(0),
            "{} {} {}",
            after(12),
            after(6),
            after(0)
        );
        let measured = race(experiment).await.unwrap();
        assert!(
            measured.target == after(12) && measured.idle > 0.0,
            "{measured:?}"
        );
        // At the latest, but a noisy loss may be there before; the next two clocks may be done when
        // that is seen.
        assert!(
            (12..=28).contains(&measured.minibatches) || measured.late > 0.0,
            "{measured:?}"
        );
        assert!(
            measured.seconds.unwrap() >= 0.02 * (measured.minibatches / 2 - 2) as f64,
            "{measured:?}"
        );
        let hopeless = Experiment {
            clocks: 400,
            patience: Duration::from_millis(50),
            ..experiment
        };
        assert_eq!(race(hopeless).await.unwrap().seconds, None);
    }
}
