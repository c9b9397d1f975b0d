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

/// Answers at once, or after `slow_ms`; notes how many rows on which thread.
#[derive(Default)]
struct Short {
    runs: Runs,
    slow_ms: Arc<AtomicU64>,
}

impl InferenceEngine for Short {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        self.runs.lock().push((inputs[0].shape[0], std::thread::current().id()));
        std::thread::sleep(Duration::from_millis(self.slow_ms.load(Ordering::Relaxed)));
        assert!(inputs[0].f32s().unwrap()[0] >= 0.0, "an engine that panics");
        Ok(inputs.to_vec())
    }

    fn may_run_anywhere(&self) -> bool {
        true
    }
}

type Runs = Arc<Mutex<Vec<(usize, std::thread::ThreadId)>>>;

/// A batcher whose engine is known to be short, and what that notes.
async fn short() -> (Batcher, Runs, Arc<AtomicU64>) {
    let engine = Short::default();
    let (runs, slow_ms) = (engine.runs.clone(), engine.slow_ms.clone());
    let policy = BatchPolicy { max_rows: 4, max_delay: Duration::ZERO };
    let metrics = Metrics::new().unwrap().model("m").batch;
    let batcher = Batcher::start("m", vec![Box::new(engine)], policy, 8, &metrics).unwrap();
    // The engine's thread is still awake after its own batches, and may be the first to look.
    let here = std::thread::current().id();
    while runs.lock().last().is_none_or(|(_, thread)| *thread != here) {
        infer(&batcher, 1.0).await.unwrap();
    }
    (batcher, runs, slow_ms)
}

async fn infer(batcher: &Batcher, value: f32) -> Answered {
    let input = Tensor::from_f32("x", [1, 1], &[value]).unwrap();
    Ok(batcher.infer(vec![input], 1).await?[0].f32s().unwrap())
}

#[tokio::test]
async fn short_batches_run_where_requests_are_and_hold_all_that_have_arrived() {
    let (batcher, runs, _) = short().await;
    let here = std::thread::current().id();
    while *runs.lock().last().unwrap() != (3, here) {
        let (one, two, three) =
            tokio::join!(infer(&batcher, 1.0), infer(&batcher, 2.0), infer(&batcher, 3.0));
        assert_eq!([one, two, three].map(Result::unwrap), [[1.0], [2.0], [3.0]]);
    }
}

#[tokio::test]
async fn batches_that_have_become_long_run_on_the_engines_thread() {
    let (batcher, runs, slow_ms) = short().await;
    slow_ms.store(10, Ordering::Relaxed);
    for _ in 0..2 {
        infer(&batcher, 1.0).await.unwrap();
    }
    assert_ne!(runs.lock().last().unwrap().1, std::thread::current().id());
}

#[tokio::test]
async fn requests_hear_of_an_engine_that_panics_where_they_are() {
    let (batcher, ..) = short().await;
    let batcher = Arc::new(batcher);
    let bad = tokio::spawn({
        let batcher = batcher.clone();
        async move { infer(&batcher, -1.0).await }
    });
    assert!(bad.await.unwrap_err().is_panic());
    assert!(matches!(infer(&batcher, 1.0).await, Err(BatchError::Closed)));
    while batcher.is_alive() {
        tokio::task::yield_now().await;
    }
}
