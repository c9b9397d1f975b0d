//! Where parameters live and how they are updated.
//!
//! A training loop computes gradients; all else about parameters goes through [`ParameterBackend`]:
//! it pulls the weights, pushes gradients and ends a step with a clock tick. Where the update
//! happens is not the loop's business: every run goes through a parameter server, by default one
//! inside the process ([`InProcessBackend`]), or a cluster of them ([`RemoteBackend`]).

mod in_process;
mod parameters;
mod remote;

pub use in_process::InProcessBackend;
pub use parameters::{ParameterSet, ParameterShape};
pub use parapet_parameter_server::optimiser::{OptimiserConfig, OptimiserSpec, Schedule};
pub use remote::{ClusterHandle, RemoteBackend, RemotePlan};

/// Name of the weights in a [`BackendState`].
const WEIGHTS: &str = "weights";
/// The optimiser's state in a [`BackendState`], in the order of the server's slots.
const SLOTS: [&str; 2] = ["optimiser.first", "optimiser.second"];

/// Holds a model's parameters and applies gradients to them.
pub trait ParameterBackend: std::fmt::Debug {
    /// Copies the current weights into `into`.
    ///
    /// # Errors
    /// If `into` has another layout, or the weights cannot be had.
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError>;

    /// Hands in the gradients of one batch. Several before a tick are averaged.
    ///
    /// # Errors
    /// If they have another layout than the weights, or cannot be delivered.
    fn push(&mut self, gradients: &ParameterSet) -> Result<(), BackendError>;

    /// Ends a step: gradients pushed before it are in the weights that are pulled after it. Without
    /// any it is no step.
    ///
    /// # Errors
    /// If the update cannot be made.
    fn clock(&mut self) -> Result<Tick, BackendError>;

    /// Everything that the backend would need to go on from here, for a checkpoint.
    ///
    /// # Errors
    /// If it cannot be had.
    fn state(&mut self) -> Result<BackendState, BackendError>;

    /// Goes on from `state`, with these buffers, if it keeps any.
    ///
    /// # Errors
    /// If it is another model's or another optimiser's.
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

    /// Into how many parts of equal size the batch of a step is to be cut.
    fn parts(&self) -> usize {
        1
    }

    /// The parts of the next step whose gradients are to be computed here, and were not
    /// handed in yet.
    ///
    /// # Errors
    /// If it is not known.
    fn parts_to_do(&mut self) -> Result<Vec<usize>, BackendError> {
        Ok(vec![0])
    }

    /// Hands in the gradient of one part, instead of [`push`](Self::push).
    ///
    /// # Errors
    /// As for a push.
    fn push_part(&mut self, _part: usize, gradients: &ParameterSet) -> Result<(), BackendError> {
        self.push(gradients)
    }

    /// Ends a step whose parts here were all handed in; nothing if there are more to do
    /// here by now.
    ///
    /// # Errors
    /// As for a clock tick.
    fn settle(&mut self) -> Result<Option<Tick>, BackendError> {
        self.clock().map(Some)
    }

    /// Returns the news since the last call, a line each: on a cluster, the cost of servers and
    /// workers that came and went.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    pub clock: u64,
    /// The learning rate of this one.
    pub learning_rate: f64,
    /// The gradient's length before clipping.
    pub gradient_norm: f64,
}

/// A backend's state: flat arrays, each as long as all parameters together, in
/// the parameters' order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackendState {
    pub clock: u64,
    /// `weights`, and what the optimiser keeps, by name.
    pub arrays: Vec<(String, Vec<f32>)>,
}

impl BackendState {
    /// The array of that name.
    pub fn array(&self, name: &str) -> Option<&[f32]> {
        self.arrays
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, values)| values.as_slice())
    }

    /// The array of that name, of a model that has `expected` values.
    fn array_of(&self, name: &str, expected: usize) -> Result<&[f32], BackendError> {
        let values = self.array(name).ok_or_else(|| BackendError::State {
            array: name.to_owned(),
        })?;
        let got = values.len();
        if got == expected {
            return Ok(values);
        }
        Err(BackendError::Layout {
            what: format!("the state's {name}"),
            expected,
            got,
        })
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
    #[error("the state has no `{array}`; it was written by another optimiser")]
    State { array: String },
    #[error("the parameter server refuses the {what} of step {step}: {reason}")]
    Refused {
        what: &'static str,
        step: u64,
        reason: String,
    },
    #[error(transparent)]
    Cluster(#[from] parapet_cluster::roles::ClusterError),
}

#[cfg(test)]
mod tests;
