//! The batcher with engines that tests hold in hand.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::metrics::Metrics;

/// Adds one to every value; fails on a batch that holds a negative one. Runs when it is let.
struct Gated {
    gate: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
    batches: mpsc::UnboundedSender<Vec<usize>>,
}

impl InferenceEngine for Gated {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let _ = self.batches.send(inputs[0].shape.clone());
        self.gate.lock().recv().unwrap();
        let values = inputs[0].f32s().unwrap();
        if values.iter().any(|&value| value < 0.0) {
            let reason = "negative".to_owned();
            return Err(EngineError::Run { reason });
        }
        let sums: Vec<f32> = values.iter().map(|value| value + 1.0).collect();
        let shape = inputs[0].shape.clone();
        Ok(vec![Tensor::from_f32("y", shape, &sums).unwrap()])
    }
}

type Answered = Result<Vec<f32>, BatchError>;

struct Setup {
    batcher: Arc<Batcher>,
    gate: std::sync::mpsc::Sender<()>,
    batches: mpsc::UnboundedReceiver<Vec<usize>>,
}

fn start(capacity: usize) -> Setup {
    start_engines(1, capacity)
}

fn start_engines(count: usize, capacity: usize) -> Setup {
    let (gate, opened) = std::sync::mpsc::channel();
    let (seen, batches) = mpsc::unbounded_channel();
    let opened = Arc::new(Mutex::new(opened));
    let engine = || Gated { gate: opened.clone(), batches: seen.clone() };
    let engines = (0..count).map(|_| Box::new(engine()) as Box<dyn InferenceEngine>);
    let policy = BatchPolicy { max_rows: 4, max_delay: Duration::ZERO };
    let metrics = Metrics::new().unwrap().model("m").batch;
    let batcher = Batcher::start("m", engines.collect(), policy, capacity, &metrics).unwrap();
    Setup { batcher: Arc::new(batcher), gate, batches }
}

impl Setup {
    fn send(&self, values: &[f32]) -> JoinHandle<Answered> {
        let batcher = self.batcher.clone();
        let input = Tensor::from_f32("x", [values.len(), 1], values).unwrap();
        let rows = values.len();
        tokio::spawn(async move {
            let outputs = batcher.infer(vec![input], rows).await?;
            Ok(outputs[0].f32s().unwrap())
        })
    }

    /// Sends a request and waits until the engine holds it, so that what follows waits
    /// in the queue.
    async fn occupy(&mut self) -> JoinHandle<Answered> {
        let occupying = self.send(&[0.0]);
        assert_eq!(self.batches.recv().await.unwrap(), [1, 1]);
        occupying
    }
}

/// Lets spawned requests reach the queue: they get there in their first poll.
async fn reach_the_queue() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_waits_together_runs_together() {
    let mut setup = start(8);
    let first = setup.occupy().await;
    let others = [setup.send(&[1.0]), setup.send(&[2.0, 3.0])];
    reach_the_queue().await;
    setup.gate.send(()).unwrap();
    assert_eq!(first.await.unwrap().unwrap(), [1.0]);
    assert_eq!(setup.batches.recv().await.unwrap(), [3, 1]);
    setup.gate.send(()).unwrap();
    let [one, two] = others;
    assert_eq!(one.await.unwrap().unwrap(), [2.0]);
    assert_eq!(two.await.unwrap().unwrap(), [3.0, 4.0]);
}

#[tokio::test]
async fn two_engines_run_two_batches_at_once_and_share_the_queue() {
    let mut setup = start_engines(2, 1);
    let (first, second) = (setup.occupy().await, setup.occupy().await);
    let waiting = setup.send(&[1.0]);
    reach_the_queue().await;
    assert!(matches!(setup.send(&[2.0]).await.unwrap(), Err(BatchError::Full)));
    (0..3).for_each(|_| setup.gate.send(()).unwrap());
    for (request, value) in [(first, 1.0), (second, 1.0), (waiting, 2.0)] {
        assert_eq!(request.await.unwrap().unwrap(), [value]);
    }
}

#[tokio::test]
async fn a_request_that_fails_does_not_hurt_its_neighbours() {
    let mut setup = start(8);
    let _first = setup.occupy().await;
    let (good, bad) = (setup.send(&[1.0]), setup.send(&[-1.0]));
    reach_the_queue().await;
    // The first, the failing batch, and its two requests one by one.
    (0..4).for_each(|_| setup.gate.send(()).unwrap());
    assert_eq!(good.await.unwrap().unwrap(), [2.0]);
    let failed = bad.await.unwrap();
    assert!(matches!(failed, Err(BatchError::Engine(EngineError::Run { .. }))));
}

#[tokio::test]
async fn a_client_that_goes_is_not_run() {
    let mut setup = start(8);
    let _first = setup.occupy().await;
    let (gone, stays) = (setup.send(&[1.0, 1.0]), setup.send(&[2.0]));
    reach_the_queue().await;
    gone.abort();
    let _ = gone.await;
    (0..2).for_each(|_| setup.gate.send(()).unwrap());
    assert_eq!(setup.batches.recv().await.unwrap(), [1, 1]);
    assert_eq!(stays.await.unwrap().unwrap(), [3.0]);
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let mut setup = start(1);
    let _first = setup.occupy().await;
    let waiting = setup.send(&[1.0]);
    reach_the_queue().await;
    let refused = setup.send(&[2.0]).await.unwrap();
    assert!(matches!(refused, Err(BatchError::Full)));
    (0..2).for_each(|_| setup.gate.send(()).unwrap());
    assert_eq!(waiting.await.unwrap().unwrap(), [2.0]);
}

#[tokio::test]
async fn requests_hear_of_a_worker_that_dies() {
    let mut setup = start(8);
    let first = setup.occupy().await;
    let waiting = setup.send(&[1.0]);
    reach_the_queue().await;
    drop(setup.gate);
    for request in [first, waiting] {
        assert!(matches!(request.await.unwrap(), Err(BatchError::WorkerGone)));
    }
    while setup.batcher.is_alive() {
        tokio::task::yield_now().await;
    }
}
