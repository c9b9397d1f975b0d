//! A model's queue and the threads that run its batches.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parapet_open_inference::Tensor;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::join::{join, split};
use super::queue::{BatchPolicy, Item, Queue};
use crate::engine::{EngineError, InferenceEngine};
use crate::metrics::BatchMetrics;

#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// Too many requests wait. Worth a retry, elsewhere or later.
    #[error("the queue is full; try again later or on another instance")]
    Full,
    /// The batcher is shutting down. Worth a retry elsewhere.
    #[error("the instance is shutting down; try another")]
    Closed,
    #[error("the model's worker stopped; restart the instance")]
    WorkerGone,
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Longest mean time of a batch that a request's own thread runs, where the engine allows that. So
/// long the thread's other connections may wait.
const SHORT: Duration = Duration::from_micros(500);

/// Collects requests of one model into batches and runs them, on a thread for each engine, or on
/// that of a request.
pub struct Batcher {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Queue,
    engines: Vec<Mutex<Box<dyn InferenceEngine>>>,
    may_run_anywhere: bool,
    /// Mean time of the last batches in nanoseconds; 0 before the first.
    batch_ns: AtomicU64,
    metrics: BatchMetrics,
}

impl Batcher {
    /// Starts the threads, named after the model. At most `capacity` requests wait, for whichever
    /// engine is free first.
    pub fn start(
        model: &str,
        engines: Vec<Box<dyn InferenceEngine>>,
        policy: BatchPolicy,
        capacity: usize,
        metrics: &BatchMetrics,
    ) -> io::Result<Self> {
        let queue = Queue::new(policy, capacity);
        let may_run_anywhere = engines.iter().all(|engine| engine.may_run_anywhere());
        let engines: Vec<_> = engines.into_iter().map(Mutex::new).collect();
        let (batch_ns, metrics) = (AtomicU64::new(0), metrics.clone());
        let shared = Arc::new(Shared { queue, engines, may_run_anywhere, batch_ns, metrics });
        let start = |engine| {
            let shared = shared.clone();
            let run = move || shared.run(engine);
            std::thread::Builder::new().name(format!("model {model}")).spawn(run)
        };
        let workers = (0..shared.engines.len()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { shared, workers })
    }

    /// Waits for the outputs, in the model's order, for `inputs`: the model's inputs in its order,
    /// each of `rows` rows, validated. Dropping the future takes the request out of the queue,
    /// unless its batch is already running.
    pub async fn infer(&self, inputs: Vec<Tensor>, rows: usize) -> Result<Vec<Tensor>, BatchError> {
        let (reply, answer) = oneshot::channel();
        let shared = &self.shared;
        shared.queue.push(Item { inputs, rows, arrived: Instant::now(), reply })?;
        // Requests that have arrived by now share its batch.
        tokio::task::yield_now().await;
        if shared.is_short() {
            shared.run_here();
        }
        shared.queue.wake();
        Ok(answer.await.map_err(|_| BatchError::WorkerGone)??)
    }

    /// False once an engine panicked; the others then take no more requests either.
    pub fn is_alive(&self) -> bool {
        !self.workers.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// Closes the queue should an engine panic: requests must not wait for a thread that is gone.
struct CloseOnPanic<'a>(&'a Queue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close_and_clear();
        }
    }
}

impl Shared {
    fn run(&self, engine: usize) {
        let _guard = CloseOnPanic(&self.queue);
        while let Some(batch) = self.queue.next_batch() {
            self.run_batch(self.engines[engine].lock().as_ref(), batch);
        }
    }

    fn is_short(&self) -> bool {
        let mean = Duration::from_nanos(self.batch_ns.load(Ordering::Relaxed));
        let waits = !self.queue.policy.max_delay.is_zero();
        self.may_run_anywhere && !waits && !mean.is_zero() && mean < SHORT
    }

    /// Runs a batch if an engine is free.
    fn run_here(&self) {
        let _guard = CloseOnPanic(&self.queue);
        if let Some(engine) = self.engines.iter().find_map(Mutex::try_lock)
            && let Some(batch) = self.queue.try_batch()
        {
            self.run_batch(engine.as_ref(), batch);
        }
    }

    fn run_batch(&self, engine: &dyn InferenceEngine, batch: Vec<Item>) {
        let start = Instant::now();
        let inputs: Vec<&[Tensor]> = batch.iter().map(|item| item.inputs.as_slice()).collect();
        let rows: Vec<usize> = batch.iter().map(|item| item.rows).collect();
        let outputs = engine.infer(&join(&inputs)).and_then(|outputs| split(outputs, &rows));
        let taken = start.elapsed();
        let (mean, taken_ns) = (self.batch_ns.load(Ordering::Relaxed), taken.as_nanos() as u64);
        let mean = if mean == 0 { taken_ns } else { mean - mean / 8 + taken_ns / 8 };
        self.batch_ns.store(mean.max(1), Ordering::Relaxed);
        self.metrics.batch(rows.iter().sum(), taken);
        match outputs {
            Ok(outputs) => {
                for (item, outputs) in batch.into_iter().zip(outputs) {
                    self.metrics.queued(start.saturating_duration_since(item.arrived));
                    // An error means that the client has gone meanwhile.
                    let _ = item.reply.send(Ok(outputs));
                }
            }
            Err(error) if batch.len() > 1 && error.may_spare_others() => {
                tracing::warn!(%error, requests = batch.len(), "batch failed, running its \
                    requests one by one");
                batch.into_iter().for_each(|item| self.run_batch(engine, vec![item]));
            }
            Err(error) => {
                for item in batch {
                    let _ = item.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
