//! A whole training: servers, workers, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use indicatif::ProgressBar;
use parapet_cluster::node::transport::Transport;
use parapet_cluster::node::{Pending, TaskError, TaskSpec, Worker};
use parapet_parameter_server::{
    ArrayFilters, Clock, Consistency, Ftrl, Key, KeyRange, Keys, Kkt, Layout, PushFilter, Values,
};
use tokio::task::JoinSet;

use crate::data::{Batches, DataSet, Minibatch};
use crate::harness::{ARRAY, Array, Cluster, Setup};
use crate::model::{Score, gradient};

/// Weights that are read at once when the model is judged.
const READ: u64 = 1 << 20;

/// Pushes that are not acknowledged yet, before a worker waits for one.
pub(crate) const PUSHES: usize = 64;

/// A worker that only reads, at clock 0, whatever there is. No other has its number.
pub(crate) const READER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Training {
    pub(crate) workers: usize,
    pub(crate) servers: u64,
    /// Servers that hold each range.
    pub(crate) replicas: u64,
    pub(crate) consistency: Consistency,
    /// Rows of a minibatch.
    pub(crate) batch: usize,
    pub(crate) passes: usize,
    /// The servers' update. Its gradients are sums over minibatches, so that the penalty weighs
    /// against the sum over all rows, whatever the size of a minibatch.
    pub(crate) ftrl: Ftrl,
    pub(crate) kkt: Option<Kkt>,
    pub(crate) seed: u64,
}

/// Bytes of keys and values in all messages between workers and servers, without the frames around
/// them; what goes from server to server is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Payload {
    /// Keys that workers ask for.
    pub(crate) asked: u64,
    /// Weights that they get, and the keys beside them.
    pub(crate) answered: u64,
    /// Gradients that they push, and their keys.
    pub(crate) pushed: u64,
    /// Rows of gradients before and after the KKT filter.
    pub(crate) rows: u64,
    pub(crate) rows_sent: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrainingOutcome {
    /// On the held-out rows.
    pub(crate) score: Score,
    /// Rows that were learned from, as often as they were.
    pub(crate) rows: usize,
    /// The mean loss of those rows, each before its minibatch was learned from.
    pub(crate) progressive_loss: f64,
    /// From the first minibatch to the last acknowledgement.
    pub(crate) seconds: f64,
    /// The share of the workers' time in which they waited for servers.
    pub(crate) idle: f64,
    pub(crate) payload: Payload,
    /// Weights that are not 0, by key.
    pub(crate) model: Vec<(Key, f32)>,
}

impl Training {
    /// Trains until all is learned, with a bar of the rows that are.
    pub(crate) async fn run(
        self,
        data: Arc<DataSet>,
        transport: impl Transport,
        bar: ProgressBar,
    ) -> Result<TrainingOutcome> {
        let keys = data.keys();
        let weights = Array {
            keys,
            shards: self.servers,
            layout: Layout::sparse(1, self.ftrl),
        };
        let workers = self.workers as u64;
        let setup = Setup {
            spares: 0,
            arrays: vec![weights],
            // Lists of keys that the other end has are sent as digests.
            filters: ArrayFilters {
                key_lists: true,
                ..ArrayFilters::default()
            },
            ..Setup::new(workers, self.servers, self.replicas, self.consistency)
        };
        let cluster = Cluster::start(transport, setup).await;
        let begun = Instant::now();
        // Dropping the set ends all workers when one fails: they would wait for its clock.
        let mut workers = JoinSet::new();
        for number in 0..self.workers {
            let run = WorkerRun {
                training: self,
                worker: cluster.worker(number as u64),
                data: Arc::clone(&data),
                tally: Tally::default(),
            };
            workers.spawn(run.run(number, bar.clone()));
        }
        let mut all = Tally::default();
        while let Some(tally) = workers.join_next().await {
            all.add(&tally??);
        }
        let spent = begun.elapsed();
        bar.finish_and_clear();
        let model = read(&cluster.worker(READER), keys).await?;
        let weight = |feature: u32| {
            let place = model.binary_search_by_key(&Key::from(feature), |&(key, _)| key);
            place.map_or(0.0, |place| model[place].1)
        };
        let held_out = data.held_out.iter();
        let predicted: Vec<f32> = held_out.map(|row| row.probability(weight)).collect();
        Ok(TrainingOutcome {
            score: Score::new(&predicted, data.held_out.labels()),
            rows: all.rows,
            progressive_loss: all.loss / all.rows.max(1) as f64,
            seconds: spent.as_secs_f64(),
            idle: all.idle.as_secs_f64() / (spent.as_secs_f64() * self.workers as f64),
            payload: all.payload,
            model,
        })
    }

    pub(crate) fn batches(&self, rows: usize) -> Batches {
        Batches {
            rows,
            batch: self.batch,
            workers: self.workers,
            passes: self.passes,
            seed: self.seed,
        }
    }
}

/// The weights that are not 0.
async fn read(reader: &Worker, keys: KeyRange) -> Result<Vec<(Key, f32)>, TaskError> {
    let mut model = Vec::new();
    for range in keys.cut(keys.len().div_ceil(READ)) {
        let pulled = reader
            .pull(TaskSpec::new(ARRAY, range, Clock(0)))
            .await?
            .await?;
        let weights = (range.start..range.end).zip(pulled.values.iter().copied());
        model.extend(weights.filter(|&(_, weight)| weight != 0.0));
    }
    Ok(model)
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    rows: usize,
    loss: f64,
    /// Time that workers waited for servers.
    idle: Duration,
    payload: Payload,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.loss += other.loss;
        self.idle += other.idle;
        self.payload.asked += other.payload.asked;
        self.payload.answered += other.payload.answered;
        self.payload.pushed += other.payload.pushed;
        self.payload.rows += other.payload.rows;
        self.payload.rows_sent += other.payload.rows_sent;
    }
}

/// One worker: pull the minibatch's weights, compute, push, again.
struct WorkerRun {
    training: Training,
    worker: Worker,
    data: Arc<DataSet>,
    tally: Tally,
}

impl WorkerRun {
    async fn run(mut self, number: usize, bar: ProgressBar) -> Result<Tally> {
        let (data, keys) = (Arc::clone(&self.data), self.data.keys());
        let kkt = self.training.kkt;
        let filters = ArrayFilters {
            kkt,
            ..ArrayFilters::default()
        };
        let mut filter = PushFilter::new(ARRAY, 1, filters);
        let batches = self.training.batches(data.train.len()).of(number);
        let mut batches = batches.map(|places| Minibatch::new(&data.train, &places));
        let mut pushes = FuturesUnordered::new();
        let mut next = batches.next();
        let mut clock = Clock(0);
        while let Some(batch) = next {
            clock = clock.next();
            let named = Keys::List(batch.keys.clone().into());
            let spec = TaskSpec::new(ARRAY, keys, clock).keys(named.clone());
            if batch.keys.is_empty() {
                // Only raises the clock, so that no other worker waits for this one.
                next = batches.next();
                pushes.push(self.worker.push(spec, Values::none()).await?);
                continue;
            }
            let pull = self.worker.pull(spec.clone()).await?;
            // While the weights are on their way.
            next = batches.next();
            let pulled = self.wait(pull, &mut pushes).await?.values;
            let (sums, loss) = gradient(&batch, &pulled);
            let (sums, weights) = (Values::from(sums), Values::F32(pulled));
            let (kept, values) = filter.filter(keys, &named, &sums, Some(&weights))?;
            self.count(batch.keys.len() as u64, kept.len(keys) as u64);
            self.tally.rows += batch.rows.len();
            self.tally.loss += loss;
            bar.inc(batch.rows.len() as u64);
            pushes.push(self.worker.push(spec.keys(kept), values).await?);
            while pushes.len() > PUSHES {
                self.finish_one(&mut pushes).await?;
            }
        }
        while !pushes.is_empty() {
            self.finish_one(&mut pushes).await?;
        }
        Ok(self.tally)
    }

    /// Waits for a pull. A push that fails ends it: the pull may wait for that push.
    async fn wait<R>(
        &mut self,
        mut pull: Pending<R>,
        pushes: &mut FuturesUnordered<Pending<()>>,
    ) -> Result<R, TaskError> {
        let begun = Instant::now();
        loop {
            tokio::select! {
                biased;
                Some(pushed) = pushes.next() => pushed?,
                pulled = &mut pull => {
                    self.tally.idle += begun.elapsed();
                    return pulled;
                }
            }
        }
    }

    async fn finish_one(
        &mut self,
        pushes: &mut FuturesUnordered<Pending<()>>,
    ) -> Result<(), TaskError> {
        let begun = Instant::now();
        let done = pushes.next().await.unwrap_or(Ok(()));
        self.tally.idle += begun.elapsed();
        done
    }

    /// Counts the bytes of a pull and a push that name so many keys.
    fn count(&mut self, pulled: u64, sent: u64) {
        const KEY: u64 = size_of::<Key>() as u64;
        const NUMBER: u64 = size_of::<f32>() as u64;
        // A list that the other end has is a digest with its length, to each server.
        let known = |keys: u64| (24 * self.training.servers).min(keys * KEY);
        // The head of a chain, which takes pushes, has the list if it is also the tail.
        let is_known = pulled == sent && self.training.replicas == 1;
        let payload = &mut self.tally.payload;
        payload.asked += pulled * KEY;
        payload.answered += pulled * NUMBER + known(pulled);
        payload.pushed += sent * NUMBER + if is_known { known(sent) } else { sent * KEY };
        payload.rows += pulled;
        payload.rows_sent += sent;
    }
}
