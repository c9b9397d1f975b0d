//! A model's queue and the threads that run its batches.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parapet_open_inference::Tensor;
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

/// Collects requests of one model into batches and runs them, on a thread for each engine.
pub struct Batcher {
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
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
        let queue = Arc::new(Queue::new(policy, capacity));
        let start = |engine| {
            let worker = Worker { queue: queue.clone(), engine, metrics: metrics.clone() };
            std::thread::Builder::new().name(format!("model {model}")).spawn(move || worker.run())
        };
        let workers = engines.into_iter().map(start).collect::<io::Result<_>>()?;
        Ok(Self { queue, workers })
    }

    /// Waits for the outputs, in the model's order, for `inputs`: the model's inputs in its order,
    /// each of `rows` rows, validated. Dropping the future takes the request out of the queue,
    /// unless its batch is already running.
    pub async fn infer(&self, inputs: Vec<Tensor>, rows: usize) -> Result<Vec<Tensor>, BatchError> {
        let (reply, answer) = oneshot::channel();
        self.queue.push(Item { inputs, rows, arrived: Instant::now(), reply })?;
        Ok(answer.await.map_err(|_| BatchError::WorkerGone)??)
    }

    /// False once an engine panicked; the others then take no more requests either.
    pub fn is_alive(&self) -> bool {
        !self.workers.iter().any(JoinHandle::is_finished)
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct Worker {
    queue: Arc<Queue>,
    engine: Box<dyn InferenceEngine>,
    metrics: BatchMetrics,
}

impl Worker {
    fn run(self) {
        while let Some(batch) = self.queue.next_batch() {
            self.run_batch(batch);
        }
    }

    fn run_batch(&self, batch: Vec<Item>) {
        let start = Instant::now();
        let inputs: Vec<&[Tensor]> = batch.iter().map(|item| item.inputs.as_slice()).collect();
        let rows: Vec<usize> = batch.iter().map(|item| item.rows).collect();
        let outputs = self.engine.infer(&join(&inputs)).and_then(|outputs| split(outputs, &rows));
        self.metrics.batch(rows.iter().sum(), start.elapsed());
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
                batch.into_iter().for_each(|item| self.run_batch(vec![item]));
            }
            Err(error) => {
                for item in batch {
                    let _ = item.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Should the engine panic, requests must not wait for a thread that is gone.
        self.queue.close_and_clear();
    }
}

#[cfg(test)]
mod tests;
