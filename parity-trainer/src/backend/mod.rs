//! Where parameters live and how they are updated.
//!
//! A training loop goes through [`ParameterBackend`]: it pulls the weights, pushes gradients and
//! settles the step. Every run uses a parameter server's store, by default one inside the process.

mod in_process;
mod remote;

use std::ops::Range;

pub use in_process::InProcessBackend;
use parapet_cluster::roles::training::Job;
pub(crate) use parapet_cluster::roles::training::ROW;
use parapet_parameter_server::Factors;
pub use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};
pub use remote::{ClusterHandle, RemoteBackend, RemotePlan};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone)]
pub enum Place {
    /// A parameter server's store in this process.
    InProcess,
    /// A cluster, where this process leads the training.
    Lead(ClusterHandle, RemotePlan),
    /// A cluster, where another process leads the training.
    Join(ClusterHandle, Job),
}

impl Place {
    /// Parts that each step's batch is cut into.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::InProcess => 1,
            Self::Lead(_, plan) => plan.executors,
            Self::Join(_, job) => job.executors.len().max(1),
        }
    }

    /// Opens the backend; `layers` are the weights of fully connected layers.
    pub(crate) fn open(
        self,
        rule: OptimiserConfig,
        parameters: &ParameterSet,
        layers: Vec<Range<usize>>,
    ) -> Result<Box<dyn ParameterBackend>, BackendError> {
        Ok(match self {
            Self::InProcess => Box::new(InProcessBackend::new(rule, &parameters.values)?),
            Self::Lead(cluster, plan) => {
                Box::new(RemoteBackend::lead(cluster, plan, parameters, layers)?)
            }
            Self::Join(cluster, job) => Box::new(RemoteBackend::join(cluster, job, parameters)?),
        })
    }
}

/// Values for all of a model's parameters (weights or gradients), one after the other; and its
/// buffers, such as batch norm's running moments: those to compute with, or those after a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParameterSet {
    pub values: Vec<f32>,
    pub buffers: Vec<f32>,
}

impl ParameterSet {
    fn fill(&mut self, pulled: &[f32]) -> Result<(), BackendError> {
        check_length("the pulled parameters", self.values.len(), pulled.len())?;
        self.values.copy_from_slice(pulled);
        Ok(())
    }
}

/// Gradients of fully connected layers' weights as factors, in place of the numbers.
#[derive(Debug, Default)]
pub struct FactoredGradients {
    /// Beside each layer's first parameter. In the other gradients there are zeros, but for numbers
    /// that may share a row of the servers' array with other layers'.
    pub layers: Vec<(usize, Factors)>,
    /// Sum of the squares of the numbers that are not among the others.
    pub square: f64,
}

/// Holds a model's parameters and applies gradients to them.
///
/// The batch of a step is cut into parts of equal size, which several processes may share. In one
/// process there is one part.
pub trait ParameterBackend: std::fmt::Debug {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError>;

    /// Takes the gradients of a part from the parameter `from` on, as far as they were not handed
    /// in before; those from 0 on are the part's last ones. Others only if it
    /// [takes segments](Self::takes_segments).
    fn push_part(
        &mut self,
        part: usize,
        gradients: &ParameterSet,
        factors: FactoredGradients,
        from: usize,
    ) -> Result<(), BackendError>;

    fn takes_factors(&self) -> bool {
        false
    }

    /// Returns how many shards parameters are spread over.
    fn shards(&self, _: Range<usize>) -> usize {
        1
    }

    /// Returns true if it takes a part's gradients piece by piece, and sends each at once.
    fn takes_segments(&self) -> bool {
        false
    }

    /// Ends a step whose parts here were all handed in: the gradients are in the weights that are
    /// pulled after it. Nothing if there are more to do here by now.
    fn settle(&mut self) -> Result<Option<Tick>, BackendError>;

    /// Returns everything that the backend would need to go on from here, for a checkpoint.
    fn state(&mut self) -> Result<BackendState, BackendError>;

    /// Goes on from `state`, with these buffers, if it keeps any.
    fn restore(&mut self, state: &BackendState, buffers: &[f32]) -> Result<(), BackendError>;

    /// Returns true if it keeps the buffers, too, because no process computes all parts of a step:
    /// they are then pulled with the weights, and each part begins with those of the step and
    /// pushes its own with its gradients. The next step's are their mean.
    fn keeps_buffers(&self) -> bool {
        false
    }

    /// Steps done, by other processes too.
    fn steps_done(&self) -> u64;

    /// Parts of the next step whose gradients are to be computed here, and were not handed in yet.
    fn parts_to_do(&mut self) -> Result<Vec<usize>, BackendError> {
        Ok(vec![0])
    }

    /// Returns the news since the last call, a line each: on a cluster, the cost of servers and
    /// workers that came and went.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    pub learning_rate: f64,
    /// The gradient's length before clipping.
    pub gradient_norm: f64,
}

/// A backend's state: flat arrays, each as long as all parameters together, in their order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackendState {
    pub clock: u64,
    pub weights: Vec<f32>,
    pub slots: Vec<Vec<f32>>,
}

impl BackendState {
    /// Refuses the state of a model that has not `length` weights, and another optimiser's.
    fn check(&self, rule: &OptimiserConfig, length: usize) -> Result<(), BackendError> {
        ensure!(self.slots.len() == rule.optimiser.slots(), BackendError::OtherOptimiser);
        let mut arrays = std::iter::once(&self.weights).chain(&self.slots);
        arrays.try_for_each(|array| check_length("the state's arrays", length, array.len()))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("{what} hold {got} values, the model has {expected}; they are another model's")]
    Layout { what: &'static str, expected: usize, got: usize },
    #[error("the state was written by another optimiser")]
    OtherOptimiser,
    #[error("the parameter server refuses the {what} of step {step}: {reason}")]
    Refused { what: &'static str, step: u64, reason: String },
    #[error(transparent)]
    Cluster(#[from] parapet_cluster::roles::ClusterError),
}

fn check_length(what: &'static str, expected: usize, got: usize) -> Result<(), BackendError> {
    if expected == got { Ok(()) } else { Err(BackendError::Layout { what, expected, got }) }
}

#[cfg(test)]
mod tests;
