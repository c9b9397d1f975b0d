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
    /// The disk is full, or the folder cannot be written.
    #[error("{}: cannot write: {source}; checkpoints before this one are whole: make room and go \
        on with --resume", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A checkpoint that is not whole.
    #[error("{}: not a whole checkpoint: {problem}", path.display())]
    Torn { path: PathBuf, problem: String },
    /// The checkpoint of a run with other settings.
    #[error(
        "{}: belongs to a run with other settings, data or deployed model; resume with those of \
            config.toml, or give another --run",
        path.display()
    )]
    OtherRun { path: PathBuf },
    /// A folder that is used for something else.
    #[error(
        "{}: holds another program's config.toml; name another folder with --run",
        path.display()
    )]
    NotARun { path: PathBuf },
    /// Another process is at work there.
    #[error(
        "{}: another run{} is at work there; wait for its end, or name another folder with \
            --{flag}",
        path.display(), holder.map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    Busy {
        path: PathBuf,
        /// The other's process id, where it is known.
        holder: Option<u32>,
        /// The setting that names the folder.
        flag: &'static str,
    },
    /// No run to go on with.
    #[error("{}: no run to resume; leave --resume away to begin one, or name its folder with \
        --run", path.display())]
    NoRun { path: PathBuf },
    /// Checkpoints are there, none is whole.
    #[error(
        "{}: none of the {count} checkpoints is whole; begin again without --resume",
        path.display()
    )]
    AllTorn { path: PathBuf, count: usize },
    /// A plot that cannot be drawn.
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
