//! A training run on disk: what it was given, how it went, and where it can go on.
//!
//! ```text
//! RUN/
//!   config.toml                     all settings; `--config` takes the file again
//!   environment.toml                versions, seeds and digests of what it was given
//!   log.jsonl                       a record each few steps
//!   curve.svg                       the log, drawn
//!   checkpoint-000001200.postcard   the last two
//!   best.safetensors                the weights that did best on validation
//!   lock                            held by who is at work
//!   replaced/                       checkpoints of the run before this one
//! ```

mod checkpoint;
mod folder;
mod lock;
mod log;
pub mod plot;

use std::io;
use std::path::Path;

use crate::TrainError;

pub use checkpoint::Checkpoint;
pub use folder::{Found, RunFolder};
pub use lock::lock;
pub use log::{CurveLabels, LogRecord};

fn unwritten(path: &Path) -> impl Fn(io::Error) -> TrainError + use<'_> {
    |source| {
        TrainError::Failed(format!(
            "{}: cannot write: {source}; checkpoints before this one are whole: make room and go \
             on with --resume",
            path.display()
        ))
    }
}

/// The error of a file of a run with other settings, data or deployed model.
pub fn other_run(path: &Path) -> TrainError {
    let problem = "belongs to a run with other settings, data or deployed model; resume with those \
        of config.toml, or give another --run";
    TrainError::input(path, problem)
}
