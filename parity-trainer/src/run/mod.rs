//! A training run on disk: what it was given, how it went, and where it can go on.
//!
//! ```text
//! RUN/
//!   config.toml                      all settings; `--config` takes the file again
//!   environment.toml                 versions, seeds and digests of what it was given
//!   log.jsonl                        a record each few steps
//!   curve.svg                        the log, drawn
//!   checkpoint-000001200.safetensors the last two
//!   best.safetensors                 the weights that did best on validation
//!   lock                             held by who is at work
//!   replaced/                        checkpoints of the run before this one
//! ```

mod checkpoint;
mod curve;
mod folder;
mod lock;
mod log;
pub mod plot;

use std::path::PathBuf;

pub use checkpoint::Checkpoint;
pub use curve::{CurveLabels, learning_curve};
pub use folder::{Found, RunFolder};
pub use lock::Lock;
pub use log::LogRecord;

/// A run that cannot be recorded or gone on with. One line that names the file and the fix.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}: cannot write: {source}; checkpoints before this one are whole: make room and go \
        on with --resume", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: not a whole checkpoint: {problem}", path.display())]
    Torn { path: PathBuf, problem: String },
    #[error(
        "{}: belongs to a run with other settings, data or deployed model; resume with those of \
            config.toml, or give another --run",
        path.display()
    )]
    OtherRun { path: PathBuf },
    #[error(
        "{}: holds another program's config.toml; name another folder with --run",
        path.display()
    )]
    NotARun { path: PathBuf },
    #[error(
        "{}: another run{} is at work there; wait for its end, or name another folder with \
            --{flag}",
        path.display(), holder.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Busy {
        path: PathBuf,
        holder: Option<u32>,
        flag: &'static str,
    },
    #[error("{}: no run to resume; leave --resume away to begin one, or name its folder with \
        --run", path.display())]
    NoRun { path: PathBuf },
    #[error(
        "{}: none of the {count} checkpoints is whole; begin again without --resume",
        path.display()
    )]
    AllTorn { path: PathBuf, count: usize },
    #[error("cannot draw: {0}")]
    Plot(String),
}

impl RunError {
    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::OtherRun { .. }
                | Self::NotARun { .. }
                | Self::NoRun { .. }
                | Self::AllTorn { .. }
                | Self::Busy { .. }
        )
    }
}
