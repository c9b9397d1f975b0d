//! Errors of experiments with real frontends.

use super::limits::SETTLE_LIMIT;
use super::processes::ProcessError;
use crate::payload::BodiesError;
use crate::schedule::ScheduleError;
use crate::target::TargetError;

/// Reason why an experiment could not be run; one line.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The rows do not fit the model.
    #[error(transparent)]
    Bodies(#[from] BodiesError),
    /// A frontend does not answer.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A frontend that is said to run already does not answer, or lacks the model.
    #[error("strategy {strategy}: {source}")]
    Given {
        strategy: String,
        source: Box<TargetError>,
    },
    /// Frontends of different models.
    #[error(
        "strategy {strategy}: its model takes other inputs than that of {first}; compare \
            frontends of one model"
    )]
    Inputs { strategy: String, first: String },
    /// Processes are to be started, and no repository is given.
    #[error(
        "no model repository for the instances; give it with --repository, or every strategy a url"
    )]
    NoPlaces,
    /// Instances stay down.
    #[error("strategy {strategy}: not all of its instances came up within {} s; see the logs in \
        {logs}", SETTLE_LIMIT.as_secs())]
    NotReady {
        strategy: String,
        /// Where the logs are.
        logs: String,
    },
    /// No thread to be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}
