//! Parameters on a cluster of parameter servers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parapet_cluster::array::FilterSpec;
use parapet_cluster::node::Transport;
use parapet_cluster::registry::{Address, Registry};
use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::training::{Deal, Job, NewTraining, ROW, Settled, Training, next_job};
use parapet_parameter_server::Consistency;
use tokio::runtime::Runtime;

use super::{
    BackendError, BackendState, FactoredGradients, OptimiserConfig, ParameterBackend, ParameterSet,
    Tick, check_length,
};

/// Shards that the parameters are cut into, at least and at most: several for each server, so that
/// they can be spread evenly.
const SHARDS: (usize, usize) = (4, 16);
/// Parameters that are worth one more shard: a step takes some ten messages about each, and those
/// about a much smaller one cost more than what they carry.
const SHARD: usize = 16 << 10;

/// A cluster of parameter servers, and the threads of this process that talk to it.
#[derive(Clone)]
pub struct ClusterHandle {
    runtime: Arc<Runtime>,
    registry: Registry,
    name: String,
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {}", self.name)
    }
}

impl ClusterHandle {
    pub fn connect(address: &Address) -> Result<Self, BackendError> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(ClusterError::Runtime)?;
        let registry = runtime.block_on(address.open()).map_err(ClusterError::from)?;
        Ok(Self { runtime: Arc::new(runtime), registry, name: address.cluster().to_owned() })
    }

    /// Waits for the next training other than `last`; nothing if `stop` says so before.
    pub fn next_job(
        &self,
        last: Option<&Job>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Job>, BackendError> {
        self.runtime.block_on(async {
            let next = next_job(&self.registry, last);
            tokio::pin!(next);
            loop {
                tokio::select! {
                    job = &mut next => return Ok(Some(job?)),
                    () = tokio::time::sleep(std::time::Duration::from_millis(100)) => {
                        if stop() {
                            return Ok(None);
                        }
                    }
                }
            }
        })
    }
}

/// A training on a cluster, as all of its processes go about it.
#[derive(Debug, Clone)]
pub struct RemotePlan {
    pub rule: OptimiserConfig,
    pub executors: usize,
    pub deal: Deal,
    pub consistency: Consistency,
    pub filters: FilterSpec,
    /// Gradients travel while earlier layers' are computed; not with clipping, which needs all.
    pub wait_free: bool,
    /// Gradients of fully connected layers travel as factors, where these are fewer numbers.
    pub factors: bool,
    pub task: String,
}

/// A part in a training on a cluster. When dropped it leaves, and ends the training if it leads it.
///
/// The servers' array has the weights, filled up to a whole row, and then the model's buffers: what
/// the model becomes does not depend on which process computes which part.
#[derive(Debug)]
pub struct RemoteBackend {
    cluster: ClusterHandle,
    plan: RemotePlan,
    training: Option<Training>,
    /// Numbers of weights and of values of buffers.
    lengths: (usize, usize),
    /// Weights of fully connected layers.
    layers: Vec<Range<usize>>,
    /// Where the gradients end that a part has not handed in yet, if it has handed in some.
    unsent: Option<usize>,
    gradient_norm: f64,
    /// Of the part that is handed in: the sum of squares of what came as factors.
    factored_square: f64,
}

impl RemoteBackend {
    pub fn lead(
        cluster: ClusterHandle,
        plan: RemotePlan,
        weights: &ParameterSet,
        layers: Vec<Range<usize>>,
    ) -> Result<Self, BackendError> {
        let mut backend = Self::new(cluster, plan, weights);
        backend.layers = layers;
        backend.begin(&weights.values, &weights.buffers, None)?;
        Ok(backend)
    }

    pub fn join(
        cluster: ClusterHandle,
        job: Job,
        weights: &ParameterSet,
    ) -> Result<Self, BackendError> {
        let plan = RemotePlan {
            rule: job.training.rule,
            executors: job.executors.len(),
            deal: job.deal,
            consistency: job.consistency,
            filters: job.filters,
            wait_free: job.wait_free,
            factors: job.factors,
            task: job.task.clone(),
        };
        let mut backend = Self::new(cluster, plan, weights);
        let (weights, buffers) = backend.lengths;
        check_length("the cluster's parameters", array_length(weights, buffers), job.length)?;
        let cluster = &backend.cluster;
        let joining = Training::join(&cluster.registry, &cluster.name, Transport::Sockets, job);
        backend.training = Some(cluster.runtime.block_on(joining)?);
        Ok(backend)
    }

    fn new(cluster: ClusterHandle, plan: RemotePlan, weights: &ParameterSet) -> Self {
        Self {
            cluster,
            plan,
            training: None,
            lengths: (weights.values.len(), weights.buffers.len()),
            layers: Vec::new(),
            unsent: None,
            gradient_norm: 0.0,
            factored_square: 0.0,
        }
    }

    fn begin(
        &mut self,
        weights: &[f32],
        buffers: &[f32],
        from: Option<(u64, &[Vec<f32>])>,
    ) -> Result<(), BackendError> {
        self.end()?;
        let array: Vec<f32> = scaled((weights, 1.0), (buffers, 1.0)).collect();
        let new = NewTraining {
            rule: self.plan.rule,
            executors: self.plan.executors,
            deal: self.plan.deal,
            consistency: self.plan.consistency,
            filters: self.plan.filters,
            wait_free: self.plan.wait_free,
            factors: self.plan.factors,
            shards: most_shards(array.len()) as u64,
            layers: &self.layers,
            weights: &array,
            measured_from: (!buffers.is_empty()).then_some(weights.len().div_ceil(ROW) as u64),
            from,
            task: &self.plan.task,
        };
        let cluster = &self.cluster;
        let beginning = Training::begin(&cluster.registry, &cluster.name, Transport::Sockets, new);
        self.training = Some(cluster.runtime.block_on(beginning)?);
        Ok(())
    }

    fn end(&mut self) -> Result<(), BackendError> {
        let Some(training) = self.training.take() else { return Ok(()) };
        Ok(self.cluster.runtime.block_on(training.leave())?)
    }

    fn training(&mut self) -> Result<(&Runtime, &mut Training), BackendError> {
        Ok((&self.cluster.runtime, self.training.as_mut().ok_or(ClusterError::Ended)?))
    }
}

impl Drop for RemoteBackend {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("warning: the cluster was left without a word: {error}");
        }
    }
}

impl ParameterBackend for RemoteBackend {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError> {
        let (length, buffers) = self.lengths;
        let all = self.training()?.1.weights();
        into.fill(all.get(..length).unwrap_or_default())?;
        let pulled = all.get(array_length(length, buffers) - buffers..);
        let pulled = into.buffers.iter_mut().zip(pulled.unwrap_or_default());
        pulled.for_each(|(own, pulled)| *own = *pulled);
        Ok(())
    }

    fn push_part(
        &mut self,
        part: usize,
        gradients: &ParameterSet,
        factors: FactoredGradients,
        from: usize,
    ) -> Result<(), BackendError> {
        let mut scale = 1.0;
        self.factored_square += factors.square;
        if from == 0 {
            // Clipped by itself: the length of the sum is not known before it is made.
            (self.gradient_norm, scale) = self.plan.rule.scale(&gradients.values, 1);
            let square = std::mem::take(&mut self.factored_square);
            self.gradient_norm = (self.gradient_norm.powi(2) + square).max(0.0).sqrt();
        }
        // Where clocks are not added up, each part is an update by itself.
        let share = match self.plan.consistency.adds_up_clocks() {
            true => 1.0 / self.plan.executors as f64,
            false => 1.0,
        };
        // Whole rows: the rest of one goes with the segment before.
        let (from, end) = (from.div_ceil(ROW) * ROW, self.unsent.take());
        let weights = gradients.values.get(from..end.unwrap_or(self.lengths.0));
        let buffers = if end.is_none() { gradients.buffers.as_slice() } else { &[] };
        let array = scaled((weights.unwrap_or_default(), scale * share), (buffers, share));
        let factors = factors.layers.into_iter();
        let factors = factors.map(|(at, factors)| (at, factors.scaled((scale * share) as f32)));
        self.unsent = (from > 0).then_some(from);
        let (runtime, training) = self.training()?;
        let pushed = training.push_factors(part, (from / ROW) as u64, array, factors.collect());
        Ok(runtime.block_on(pushed)?)
    }

    fn takes_factors(&self) -> bool {
        self.plan.factors
    }

    fn shards(&self, numbers: Range<usize>) -> usize {
        self.training.as_ref().map_or(1, |training| training.shards(numbers).max(1))
    }

    fn takes_segments(&self) -> bool {
        self.plan.wait_free
    }

    fn settle(&mut self) -> Result<Option<Tick>, BackendError> {
        let (runtime, training) = self.training()?;
        let before = training.steps_done();
        if runtime.block_on(training.settle())? == Settled::MoreToDo {
            return Ok(None);
        }
        Ok(Some(Tick {
            learning_rate: self.plan.rule.rate(before),
            gradient_norm: self.gradient_norm,
        }))
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let (length, _) = self.lengths;
        let (runtime, training) = self.training()?;
        let slots = runtime.block_on(training.optimiser_state())?;
        let part = |values: &'_ [f32]| values.get(..length).unwrap_or_default().to_vec();
        Ok(BackendState {
            clock: training.steps_done(),
            weights: part(training.weights()),
            slots: slots.iter().map(|slot| part(slot)).collect(),
        })
    }

    fn restore(&mut self, state: &BackendState, buffers: &[f32]) -> Result<(), BackendError> {
        let (length, expected) = self.lengths;
        check_length("the state's buffers", expected, buffers.len())?;
        state.check(&self.plan.rule, length)?;
        let from = (state.clock > 0).then_some((state.clock, &state.slots[..]));
        self.begin(&state.weights, buffers, from)
    }

    fn keeps_buffers(&self) -> bool {
        true
    }

    fn steps_done(&self) -> u64 {
        self.training.as_ref().map_or(0, Training::steps_done)
    }

    fn parts_to_do(&mut self) -> Result<Vec<usize>, BackendError> {
        Ok(self.training()?.1.to_do())
    }

    fn news(&mut self) -> Vec<String> {
        let changes = self.training.as_mut().map(Training::changes).unwrap_or_default();
        changes.iter().map(ToString::to_string).collect()
    }
}

/// The servers' array of weights and buffers, or of pushes for them, each times its factor.
fn scaled<'a>(
    (weights, factor): (&'a [f32], f64),
    (buffers, share): (&'a [f32], f64),
) -> impl Iterator<Item = f32> + use<'a> {
    let (factor, share) = (factor as f32, share as f32);
    let filling = array_length(weights.len(), buffers.len()) - weights.len() - buffers.len();
    let weights = weights.iter().map(move |value| value * factor);
    let buffers = buffers.iter().map(move |value| value * share);
    weights.chain(std::iter::repeat_n(0.0, filling)).chain(buffers)
}

fn most_shards(length: usize) -> usize {
    (length / SHARD).clamp(SHARDS.0, SHARDS.1)
}

/// Numbers in the servers' array for so many weights and values of buffers, which begin a row.
const fn array_length(weights: usize, buffers: usize) -> usize {
    if buffers == 0 { weights } else { weights.next_multiple_of(ROW) + buffers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_shards_are_worth_their_messages() {
        let parameters = [1, 20_000, 78_330, 100_000, 300_000, 25_000_000];
        assert_eq!(parameters.map(most_shards), [4, 4, 4, 6, 16, 16]);
    }
}
