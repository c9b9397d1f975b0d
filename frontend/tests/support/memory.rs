//! Instances in memory, for paused time: each has a service time, and can be frozen, dead or wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parapet_frontend::payload::{Input, Output};
use parapet_frontend::upstream::{Place, Transport, Unready};
use parapet_frontend_core::{AttemptResult, Failure, FailureKind, InstanceId, PoolId};
use parapet_open_inference::Tensor;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{INPUTS, OUTPUTS, linear};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Answers after its service time.
    Well(Duration),
    /// Takes requests and answers none until it is well again.
    Frozen,
    Dead,
    /// Answers with an error.
    Broken,
    /// Answers after its service time, with NaN for everything.
    NotFinite(Duration),
}

/// Instances by id; clones share them.
#[derive(Debug, Clone)]
pub struct Memory {
    instances: Arc<Mutex<BTreeMap<InstanceId, watch::Sender<State>>>>,
    /// Instances that left with nothing in flight.
    pub gone: Arc<Mutex<Vec<InstanceId>>>,
    /// Requests that are being served.
    pub in_flight: Arc<AtomicUsize>,
    /// Instances in the order in which they got requests.
    pub log: Arc<Mutex<Vec<InstanceId>>>,
    answer: Answer,
}

/// Answer of the instances of a pool to a request's values.
pub type Model = fn(PoolId, &[f32]) -> Vec<f32>;

#[derive(Debug, Clone, Copy)]
enum Answer {
    /// One input, and one output by the name of `output`.
    One(Model),
    Tensors(fn(PoolId, &Input) -> Vec<Tensor>),
}

impl Answer {
    fn to(self, pool: PoolId, input: &Input) -> Vec<Tensor> {
        match self {
            Self::One(model) => {
                let out = model(pool, &input.tensors[0].f32s().unwrap());
                vec![Tensor::from_f32("output", vec![input.rows, OUTPUTS], &out).unwrap()]
            }
            Self::Tensors(model) => model(pool, input),
        }
    }
}

pub const SERVICE: Duration = Duration::from_millis(5);

pub fn id(pool: u8, index: u32) -> InstanceId {
    InstanceId {
        pool: PoolId(pool),
        index,
    }
}

impl Memory {
    /// Pool 0 and, with a second number, pool 1; all of them the linear model.
    pub fn new(deployed: u32, parity: u32) -> Self {
        Self::of(&[deployed, parity], |_, values| {
            values.chunks(INPUTS).flat_map(linear).collect()
        })
    }

    /// Pools of so many instances.
    pub fn of(pools: &[u32], model: Model) -> Self {
        Self::answering(pools, Answer::One(model))
    }

    /// Pools of so many instances of a model with any inputs and outputs.
    pub fn of_tensors(pools: &[u32], model: fn(PoolId, &Input) -> Vec<Tensor>) -> Self {
        Self::answering(pools, Answer::Tensors(model))
    }

    fn answering(pools: &[u32], answer: Answer) -> Self {
        let ids = (0u8..)
            .zip(pools)
            .flat_map(|(pool, &count)| (0..count).map(move |index| id(pool, index)));
        Self {
            answer,
            instances: Arc::new(Mutex::new(
                ids.map(|id| (id, watch::Sender::new(State::Well(SERVICE))))
                    .collect(),
            )),
            gone: Arc::default(),
            in_flight: Arc::default(),
            log: Arc::default(),
        }
    }

    pub fn set(&self, instance: InstanceId, state: State) {
        self.instances.lock()[&instance].send_replace(state);
    }

    pub fn pools(&self) -> Vec<Vec<String>> {
        let mut pools: Vec<Vec<String>> = Vec::new();
        for id in self.instances.lock().keys() {
            pools.resize(pools.len().max(usize::from(id.pool.0) + 1), Vec::new());
            pools[usize::from(id.pool.0)].push(format!("memory-{}-{}", id.pool.0, id.index));
        }
        pools
    }

    async fn served(&self, id: InstanceId) -> Result<(), Failure> {
        let mut state = self.instances.lock()[&id].subscribe();
        loop {
            let now = *state.borrow_and_update();
            match now {
                State::Well(service) => {
                    tokio::select! {
                        () = tokio::time::sleep(service) => return Ok(()),
                        _ = state.changed() => {}
                    }
                }
                State::Frozen => state.changed().await.unwrap(),
                State::Dead => return Err(Failure::new(FailureKind::Unreachable, "dead")),
                State::Broken => return Err(Failure::new(FailureKind::InstanceError, "broken")),
                State::NotFinite(service) => {
                    tokio::time::sleep(service).await;
                    return Err(not_finite());
                }
            }
        }
    }
}

fn not_finite() -> Failure {
    Failure::new(
        FailureKind::InvalidOutput,
        "the output holds a NaN or an infinity",
    )
}

struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Transport for Memory {
    async fn infer(&self, instance: InstanceId, input: Arc<Input>) -> AttemptResult<Output> {
        self.log.lock().push(instance);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _guard = InFlight(Arc::clone(&self.in_flight));
        self.served(instance).await?;
        let tensors = self.answer.to(instance.pool, &input);
        // As the upstream client checks what an instance answers.
        if tensors.iter().any(Tensor::has_non_finite) {
            return Err(not_finite());
        }
        Ok(Output {
            tensors,
            confidence: Some(1.0),
        })
    }

    async fn ready(&self, instance: InstanceId) -> Result<(), Unready> {
        let mut state = self.instances.lock()[&instance].subscribe();
        loop {
            let now = *state.borrow_and_update();
            match now {
                State::Well(_) | State::Broken | State::NotFinite(_) => return Ok(()),
                State::Dead => return Err(Unready::Unreachable("dead".to_owned())),
                State::Frozen => state.changed().await.unwrap(),
            }
        }
    }

    fn join(&self, instance: InstanceId, place: &Place) -> String {
        self.instances
            .lock()
            .insert(instance, watch::Sender::new(State::Well(SERVICE)));
        place.address.to_string()
    }

    fn left(&self, instance: InstanceId) {
        self.gone.lock().push(instance);
    }
}
