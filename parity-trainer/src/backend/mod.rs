//! Where parameters live and how they are updated.
//!
//! A training loop computes gradients; all else about parameters goes through [`ParameterBackend`]:
//! it pulls the weights, pushes gradients and settles the step. Where the update happens is not the
//! loop's business: every run goes through a parameter server, by default one inside the process
//! ([`InProcessBackend`]), or a cluster of them ([`RemoteBackend`]).

mod in_process;
mod parameters;
mod remote;

pub use in_process::InProcessBackend;
pub use parameters::{ParameterSet, ParameterShape};
pub use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};
pub use remote::{ClusterHandle, RemoteBackend, RemotePlan};
use serde::{Deserialize, Serialize};

/// Name of the weights in a [`BackendState`].
const WEIGHTS: &str = "weights";
/// The optimiser's state in a [`BackendState`], in the order of the server's slots.
const SLOTS: [&str; 2] = ["optimiser.first", "optimiser.second"];

/// Holds a model's parameters and applies gradients to them.
///
/// The batch of a step is cut into parts of equal size, which several processes may share. In one
/// process there is one part.
pub trait ParameterBackend: std::fmt::Debug {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError>;

    /// Hands in the gradient of one part of the step.
    fn push_part(&mut self, part: usize, gradients: &ParameterSet) -> Result<(), BackendError>;

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

    /// Steps done, where others may make steps, too.
    fn steps_done(&self) -> Option<u64> {
        None
    }

    fn parts(&self) -> usize {
        1
    }

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
    /// The step's learning rate.
    pub learning_rate: f64,
    /// The gradient's length before clipping.
    pub gradient_norm: f64,
}

/// A backend's state: flat arrays, each as long as all parameters together, in the parameters'
/// order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackendState {
    /// Steps done.
    pub clock: u64,
    /// `weights`, and what the optimiser keeps, by name.
    pub arrays: Vec<(String, Vec<f32>)>,
}

impl BackendState {
    /// Returns the array `name`, of a model that has `expected` values.
    fn array(&self, name: &str, expected: usize) -> Result<&[f32], BackendError> {
        let found = self.arrays.iter().find(|(own, _)| own == name);
        let (_, values) = found.ok_or_else(|| BackendError::State(name.to_owned()))?;
        check_length(&format!("the state's {name}"), expected, values.len())?;
        Ok(values)
    }
}

/// A backend that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("{what} hold {got} values, the model has {expected}; they are another model's")]
    Layout {
        what: String,
        expected: usize,
        got: usize,
    },
    #[error("the state has no `{0}`; it was written by another optimiser")]
    State(String),
    #[error("the parameter server refuses the {what} of step {step}: {reason}")]
    Refused {
        what: &'static str,
        step: u64,
        reason: String,
    },
    #[error(transparent)]
    Cluster(#[from] parapet_cluster::roles::ClusterError),
}

fn check_length(what: &str, expected: usize, got: usize) -> Result<(), BackendError> {
    if expected == got {
        return Ok(());
    }
    let what = what.to_owned();
    Err(BackendError::Layout {
        what,
        expected,
        got,
    })
}

#[cfg(test)]
mod tests;
