//! Instances in memory, for paused time: each has a service time, and can be frozen, dead or wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parapet_frontend::payload::{Input, Output};
use parapet_frontend::upstream::{Place, Transport, Unready};
use parapet_frontend_core::{AttemptResult, Failure, FailureKind, InstanceId, PoolId};
use parapet_open_inference::{Parameters, Tensor};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{OUTPUTS, linear_all};

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
    model: Model,
    /// Parity outputs have slots, which may be spoilt one by one.
    pub has_slots: bool,
}

/// Answer of the instances of a pool to a request.
pub type Model = fn(PoolId, &Input) -> Vec<Tensor>;

pub const SERVICE: Duration = Duration::from_millis(5);

pub fn id(pool: u8, index: u32) -> InstanceId {
    let pool = PoolId(pool);
    InstanceId { pool, index }
}

/// The one input's values.
pub fn values(input: &Input) -> Vec<f32> {
    input.tensors[0].f32s().unwrap()
}

/// The output of a model with the outputs of the linear one.
pub fn output(values: &[f32]) -> Vec<Tensor> {
    vec![Tensor::from_f32("output", vec![values.len() / OUTPUTS, OUTPUTS], values).unwrap()]
}

impl Memory {
    /// Pool 0 and, with a second number, pool 1; all of them the linear model.
    pub fn new(deployed: u32, parity: u32) -> Self {
        Self::linear(&[deployed, parity])
    }

    pub fn linear(pools: &[u32]) -> Self {
        Self::of(pools, |_, input| output(&linear_all(&values(input))))
    }

    /// Pools of so many instances.
    pub fn of(pools: &[u32], model: Model) -> Self {
        let pools = (0u8..).zip(pools);
        let ids = pools.flat_map(|(pool, &count)| (0..count).map(move |index| id(pool, index)));
        let instances = ids.map(|id| (id, watch::Sender::new(State::Well(SERVICE)))).collect();
        Self {
            model,
            has_slots: false,
            instances: Arc::new(Mutex::new(instances)),
            gone: Arc::default(),
            in_flight: Arc::default(),
            log: Arc::default(),
        }
    }

    pub fn set(&self, instance: InstanceId, state: State) {
        self.instances.lock()[&instance].send_replace(state);
    }

    /// Names of the instances of each pool.
    pub fn pools(&self) -> Vec<Vec<String>> {
        let mut pools: Vec<Vec<String>> = vec![Vec::new(); 2];
        for id in self.instances.lock().keys() {
            pools.resize(pools.len().max(usize::from(id.pool.0) + 1), Vec::new());
            pools[usize::from(id.pool.0)].push(format!("memory-{}-{}", id.pool.0, id.index));
        }
        pools
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
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
    let said = "the output holds a NaN or an infinity";
    Failure::new(FailureKind::InvalidOutput, said)
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
        let tensors = (self.model)(instance.pool, &input);
        // As the upstream client checks what an instance answers.
        let may_be_spoilt = self.has_slots && instance.pool != PoolId::DEPLOYED;
        if !may_be_spoilt && tensors.iter().any(Tensor::has_non_finite) {
            return Err(not_finite());
        }
        let confidence = Some(1.0);
        Ok(Output { tensors, parameters: Parameters::new(), confidence })
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
        let well = watch::Sender::new(State::Well(SERVICE));
        self.instances.lock().insert(instance, well);
        place.address.to_string()
    }

    fn left(&self, instance: InstanceId) {
        self.gone.lock().push(instance);
    }
}
