//! Benefit of staleness with a slow worker: the time until workers that may miss some of one
//! another's updates reach the loss that bulk-synchronous ones reach after a number of clocks (Ho
//! et al., NIPS 2013, section 5). One run of `cargo xtask bench staleness`.
//!
//! Servers, workers and connections are real. What a worker computes is real, too, but small; then
//! it sleeps until the time that its computation is to take, so that the processors of one machine,
//! which all workers share, decide nothing. The model is logistic regression by plain gradient
//! descent: the servers add up scaled gradients, so that what is learned differs between
//! consistency models by staleness alone. All weights are pulled and pushed, as a network's are.

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use parapet_cluster::node::{TaskError, TaskSpec, Transport, Worker};
use parapet_parameter_server::{Clock, Consistency, Layout, Sgd, Values};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Barrier, watch};
use tokio::time::MissedTickBehavior;
use twox_hash::XxHash3_64;

use crate::data::{Batches, DataSet, Generated, Minibatch};
use crate::ftrl::{PUSHES, READER};
use crate::harness::{ARRAY, Array, Cluster, Setup};

/// Interval at which the loss is evaluated.
const LOOKS: Duration = Duration::from_millis(10);

/// The part of a loss by which sums in another order may differ.
const ROUNDING: f64 = 1e-6;

/// A computation that ends later than this after its time counts as late.
const LATE: Duration = Duration::from_millis(2);

/// The learning rate, for the mean gradient of all workers.
const RATE: f32 = 0.2;

/// A slow worker's computation takes so many times longer.
const FACTOR: f64 = 4.0;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Experiment {
    /// bsp, bounded-delay:TAU, ssp:SLACK, eager-ssp:SLACK or eventual
    #[arg(long)]
    pub(crate) consistency: Consistency,
    /// Slow worker: never, always (the first worker) or turns:MILLISECONDS (one at a time, drawn
    /// anew)
    #[arg(long)]
    pub(crate) slowdown: Slowdown,
    /// The loss to reach is that of BSP after so many clocks
    #[arg(long, default_value_t = 100)]
    pub(crate) clocks: usize,
    /// Seed of rows and draws
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time after which a run is given up.
    #[arg(skip = Duration::from_secs(30))]
    pub(crate) patience: Duration,
}

const WORKERS: usize = 4;

/// Time that a minibatch takes without slowdown.
const COMPUTE: Duration = Duration::from_millis(8);

/// Rows of a minibatch.
const BATCH: usize = 500;

const DATA: Generated =
    Generated { features: 2_000, rows: 40_000, held_out: 4_000, draws: 50, seed: 1 };

/// When which worker is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slowdown {
    Never,
    /// The first, all the time.
    Always,
    /// One at a time: for each stretch of this length, one is drawn. The same may be drawn again.
    Turns(Duration),
}

impl FromStr for Slowdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("turns:").map(str::parse)) {
            ("never", _) => Ok(Self::Never),
            ("always", _) => Ok(Self::Always),
            (_, Some(Ok(milliseconds @ 1..))) => {
                Ok(Self::Turns(Duration::from_millis(milliseconds)))
            }
            _ => Err("write never, always or turns:100 (milliseconds)".into()),
        }
    }
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

/// Work of a worker until it was stopped.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    minibatches: u64,
    late: u64,
    idle: Duration,
    all: Duration,
}

impl Experiment {
    /// Returns true if `worker` is slow at a time since the start, and until when that stays so.
    pub(crate) fn is_slow(&self, worker: usize, time: Duration) -> (bool, Duration) {
        match self.slowdown {
            Slowdown::Never => (false, Duration::MAX),
            Slowdown::Always => (worker == 0, Duration::MAX),
            Slowdown::Turns(length) => {
                let turn = time.as_nanos() / length.as_nanos();
                let drawn = XxHash3_64::oneshot_with_seed(self.seed, &turn.to_le_bytes());
                let slow = drawn % WORKERS as u64 == worker as u64;
                (slow, length.saturating_mul(turn as u32 + 1))
            }
        }
    }

    /// Returns the end of a computation that begins at `start` and takes `work` without slowdown.
    pub(crate) fn end(&self, worker: usize, start: Duration, work: Duration) -> Duration {
        let (mut now, mut left) = (start, work);
        loop {
            let (is_slow, until) = self.is_slow(worker, now);
            let factor = if is_slow { FACTOR } else { 1.0 };
            let end = now + left.mul_f64(factor);
            if end <= until {
                return end;
            }
            left = left.saturating_sub((until - now).div_f64(factor));
            now = until;
        }
    }

    pub(crate) fn data(&self) -> Result<DataSet> {
        let seed = self.seed;
        Generated { seed, ..DATA }.generate()
    }

    fn batches(&self) -> Batches {
        Batches {
            rows: DATA.rows,
            batch: BATCH,
            workers: WORKERS,
            passes: usize::MAX,
            seed: self.seed,
        }
    }

    /// One number for each weight: a worker's part of the mean gradient of all.
    fn scaled_gradient(&self, data: &DataSet, places: &[usize], weights: &[f32]) -> Vec<f32> {
        let batch = Minibatch::new(&data.train, places);
        let keys = || batch.keys.iter().map(|&key| key as usize);
        let own: Vec<f32> = keys().map(|key| weights[key]).collect();
        let scale = 1.0 / (places.len().max(1) * WORKERS) as f32;
        let mut all = vec![0.0; weights.len()];
        for (key, sum) in keys().zip(batch.gradient(&own)) {
            all[key] = sum * scale;
        }
        all
    }

    /// The loss after the clocks of bulk-synchronous workers, computed here.
    pub(crate) fn target(&self, data: &DataSet) -> f64 {
        let mut all = std::array::from_fn::<_, WORKERS, _>(|worker| self.batches().of(worker));
        let mut weights = vec![0.0_f32; data.keys.len() as usize];
        for _ in 0..self.clocks {
            let batches: Vec<_> = all.iter_mut().filter_map(Iterator::next).collect();
            let gradient = |places: &Vec<usize>| self.scaled_gradient(data, places, &weights);
            let gradients: Vec<_> = batches.iter().map(gradient).collect();
            for gradient in gradients {
                let both = weights.iter_mut().zip(gradient);
                both.for_each(|(weight, g)| *weight -= RATE * g);
            }
        }
        loss(data, &weights)
    }

    /// Runs it. To be called within a runtime of several threads.
    pub(crate) async fn race(self) -> Result<Measured> {
        let data = Arc::new(self.data()?);
        let target = self.target(&data);
        let (rate, decay) = (RATE, 0.0);
        let weights =
            Array { keys: data.keys, shards: 2, layout: Layout::dense(1, Sgd { rate, decay }) };
        let setup = Setup {
            spares: 0,
            arrays: vec![weights],
            ..Setup::new(WORKERS as u64, 2, 1, self.consistency)
        };
        let cluster = Cluster::start(Transport::Tcp, setup).await;
        let (stop, stopped) = watch::channel(false);
        let ready = Arc::new(Barrier::new(WORKERS + 1));
        let start = |number: usize| {
            let worker = cluster.worker(number as u64);
            let (data, ready, stopped) = (Arc::clone(&data), Arc::clone(&ready), stopped.clone());
            let runtime = Handle::current();
            // A thread of its own: it sleeps there.
            let run = move || runtime.block_on(self.work(number, worker, &data, stopped, &ready));
            tokio::task::spawn_blocking(run)
        };
        let running: Vec<_> = (0..WORKERS).map(start).collect();
        let reader = cluster.worker(READER);
        let seconds = self.watch_loss(&reader, &data, target, &ready).await;
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
        &self,
        reader: &Worker,
        data: &DataSet,
        target: f64,
        ready: &Barrier,
    ) -> Result<Option<f64>, TaskError> {
        let everything = || TaskSpec::new(ARRAY, data.keys, Clock(0));
        reader.pull(everything()).await?.await?;
        ready.wait().await;
        let begun = Instant::now();
        let mut looks = tokio::time::interval(LOOKS);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while begun.elapsed() < self.patience {
            looks.tick().await;
            let pulled = reader.pull(everything()).await?.await?;
            let seconds = begun.elapsed().as_secs_f64();
            if loss(data, &pulled.values) <= target * (1.0 + ROUNDING) {
                return Ok(Some(seconds));
            }
        }
        Ok(None)
    }

    /// Computes and pushes until it is stopped.
    async fn work(
        self,
        number: usize,
        worker: Worker,
        data: &DataSet,
        mut stop: watch::Receiver<bool>,
        ready: &Barrier,
    ) -> Result<Tally, TaskError> {
        let mut tally = Tally::default();
        let at = |clock| TaskSpec::new(ARRAY, data.keys, clock);
        worker.pull(at(Clock(0))).await?.await?;
        ready.wait().await;
        let begun = Instant::now();
        let mut pushes = VecDeque::new();
        for (clock, places) in (1..).map(Clock).zip(self.batches().of(number)) {
            let asked = Instant::now();
            let pull = worker.pull(at(clock)).await?;
            let pulled = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => None,
                pulled = pull => Some(pulled?),
            };
            tally.idle += asked.elapsed();
            let Some(pulled) = pulled else { break };
            let end = self.end(number, begun.elapsed(), COMPUTE);
            let gradient = self.scaled_gradient(data, &places, &pulled.values);
            std::thread::sleep(end.saturating_sub(begun.elapsed()));
            if *stop.borrow() {
                break;
            }
            tally.late += u64::from(begun.elapsed() > end + LATE);
            tally.minibatches += 1;
            let asked = Instant::now();
            pushes.push_back(worker.push(at(clock), Values::from(gradient)).await?);
            if pushes.len() > PUSHES
                && let Some(oldest) = pushes.pop_front()
            {
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => break,
                    pushed = oldest => pushed?,
                }
            }
            tally.idle += asked.elapsed();
        }
        tally.all = begun.elapsed();
        Ok(tally)
    }
}

fn loss(data: &DataSet, weights: &[f32]) -> f64 {
    let rows = &data.held_out;
    let weight = |feature: u32| weights[feature as usize];
    let losses = rows.iter().map(|row| row.loss(row.probability(weight)));
    losses.sum::<f64>() / rows.len().max(1) as f64
}
