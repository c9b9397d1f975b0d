//! FTRL-proximal: the servers' update rule; workers pull the weights of their minibatch's features
//! and no others, and push the sums of their gradients.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parapet_cluster::node::{TaskError, TaskSpec, Transport, Worker};
use parapet_parameter_server::{
    ArrayFilters, Bytes, Clock, Consistency, Filter, Ftrl, Key, KeyRange, Keys, Kkt, Layout,
    PushFilter, Values,
};
use tokio::task::JoinSet;

use crate::data::{Batches, DataSet, Minibatch, Score};
use crate::harness::{ARRAY, Array, Cluster, Setup};

/// Weights that are read at once when the model is judged.
const READ: u64 = 1 << 20;

/// Pushes that are not acknowledged yet, before a worker waits for one.
pub(crate) const PUSHES: usize = 64;

/// A worker that only reads, at clock 0, whatever there is. No other has its number.
pub(crate) const READER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
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

#[derive(Debug)]
pub(crate) struct Outcome {
    /// On the held-out rows.
    pub(crate) score: Score,
    /// From the first minibatch to the last acknowledgement.
    seconds: f64,
    /// Gradients before and after the KKT filter.
    pub(crate) filtered: Bytes,
    /// Weights that are not 0, by key.
    pub(crate) model: Vec<(Key, f32)>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bytes { before, after } = self.filtered;
        let left_out = 100.0 * (1.0 - after as f64 / before.max(1) as f64);
        write!(
            f,
            "held out   {}\nweights    {} are not 0\ntime       {:.1} s\nKKT        {:.1} % of \
                {before} bytes of gradients left out",
            self.score,
            self.model.len(),
            self.seconds,
            if before == 0 { 0.0 } else { left_out },
        )
    }
}

impl Training {
    /// Trains until all is learned.
    pub(crate) async fn run(self, data: Arc<DataSet>, transport: Transport) -> Result<Outcome> {
        let weights =
            Array { keys: data.keys, shards: self.servers, layout: Layout::sparse(1, self.ftrl) };
        let workers = self.workers as u64;
        let setup = Setup {
            spares: 0,
            arrays: vec![weights],
            // Lists of keys that the other end has are sent as digests.
            filters: ArrayFilters { key_lists: true, ..ArrayFilters::default() },
            ..Setup::new(workers, self.servers, self.replicas, self.consistency)
        };
        let cluster = Cluster::start(transport, setup).await;
        let begun = Instant::now();
        // Dropping the set ends all workers when one fails: they would wait for its clock.
        let mut running = JoinSet::new();
        for number in 0..workers {
            running.spawn(self.work(number, cluster.worker(number), Arc::clone(&data)));
        }
        let mut filtered = Bytes::default();
        while let Some(bytes) = running.join_next().await {
            let Bytes { before, after } = bytes??;
            filtered.before += before;
            filtered.after += after;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let model = read(&cluster.worker(READER), data.keys).await?;
        let weight = |feature: u32| {
            let place = model.binary_search_by_key(&Key::from(feature), |&(key, _)| key);
            place.map_or(0.0, |place| model[place].1)
        };
        let held_out = data.held_out.iter();
        let predicted: Vec<f32> = held_out.map(|row| row.probability(weight)).collect();
        Ok(Outcome { score: Score::new(&data.held_out, &predicted), seconds, filtered, model })
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

    /// One worker: pull the minibatch's weights, compute, push, again.
    async fn work(self, number: u64, worker: Worker, data: Arc<DataSet>) -> Result<Bytes> {
        let filters = ArrayFilters { kkt: self.kkt, ..ArrayFilters::default() };
        let mut filter = PushFilter::new(ARRAY, 1, filters);
        let batches = self.batches(data.train.len()).of(number as usize);
        let mut pushes = FuturesUnordered::new();
        for (clock, places) in (1..).map(Clock).zip(batches) {
            let batch = Minibatch::new(&data.train, &places);
            let named = Keys::List(batch.keys.clone().into());
            let spec = TaskSpec::new(ARRAY, data.keys, clock).keys(named.clone());
            if batch.keys.is_empty() {
                // Only raises the clock, so that no other worker waits for this one.
                pushes.push(worker.push(spec, Values::none()).await?);
                continue;
            }
            let mut pull = worker.pull(spec.clone()).await?;
            let pulled = loop {
                tokio::select! {
                    biased;
                    // One that fails ends it: the pull may wait for that push.
                    Some(pushed) = pushes.next() => pushed?,
                    pulled = &mut pull => break pulled?.values,
                }
            };
            let sums = Values::from(batch.gradient(&pulled));
            let weights = Values::F32(pulled);
            let (kept, values) = filter.filter(data.keys, &named, &sums, Some(&weights))?;
            pushes.push(worker.push(spec.keys(kept), values).await?);
            if pushes.len() > PUSHES
                && let Some(pushed) = pushes.next().await
            {
                pushed?;
            }
        }
        while let Some(pushed) = pushes.next().await {
            pushed?;
        }
        Ok(filter.traffic().of(ARRAY, Filter::Kkt))
    }
}

/// The weights that are not 0.
async fn read(reader: &Worker, keys: KeyRange) -> Result<Vec<(Key, f32)>, TaskError> {
    let mut model = Vec::new();
    for range in keys.cut(keys.len().div_ceil(READ)) {
        let pull = reader.pull(TaskSpec::new(ARRAY, range, Clock(0))).await?;
        let pulled = pull.await?;
        let weights = (range.start..range.end).zip(pulled.values.iter().copied());
        model.extend(weights.filter(|&(_, weight)| weight != 0.0));
    }
    Ok(model)
}
