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
use std::path::{Path, PathBuf};

pub use checkpoint::Checkpoint;
pub use folder::{Found, RunFolder};
pub use lock::lock;
pub use log::{CurveLabels, LogRecord};

/// A run that cannot be recorded or gone on with. One line that names the file and the fix.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}: cannot write: {source}; checkpoints before this one are whole: make room and go \
        on with --resume", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: cannot read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A folder or checkpoint that is not the one wanted.
    #[error("{}: {problem}", path.display())]
    Refused { path: PathBuf, problem: String },
    #[error("cannot draw: {0}")]
    Plot(String),
}

impl RunError {
    fn write(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::Write {
            path: path.to_path_buf(),
            source,
        }
    }

    fn read(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::Read {
            path: path.to_path_buf(),
            source,
        }
    }

    fn refused(path: &Path, problem: impl Into<String>) -> Self {
        Self::Refused {
            path: path.to_path_buf(),
            problem: problem.into(),
        }
    }

    /// The error of a file of a run with other settings, data or deployed model.
    pub fn other_run(path: &Path) -> Self {
        let problem = "belongs to a run with other settings, data or deployed model; resume with \
            those of config.toml, or give another --run";
        Self::refused(path, problem)
    }

    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}
