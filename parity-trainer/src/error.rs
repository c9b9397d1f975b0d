//! Errors of training runs.

use std::path::PathBuf;

use crate::data::DataError;
use crate::deployed::DeployedError;
use crate::network::NetworkError;

/// A run that cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The deployed model cannot be learned from.
    #[error(transparent)]
    Deployed(#[from] DeployedError),
    /// A network cannot be built, loaded or saved.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The parameters cannot be had or updated.
    #[error("cannot update the parameters: {0}")]
    Backend(#[from] crate::backend::BackendError),
    /// A command of the cluster.
    #[error(transparent)]
    Cluster(parapet_cluster::roles::command::CommandError),
    /// The command's settings cannot be used, or the user has ended it.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The run cannot be recorded or gone on with.
    #[error(transparent)]
    Run(#[from] crate::run::RunError),
    /// The code cannot exist or does not fit the model's input.
    #[error(transparent)]
    Code(#[from] parapet_encoder::CodeError),
    /// There is no such parity row.
    #[error("--row {row}: the code has rows 0 to {last} (r = {r})")]
    Row {
        /// The row asked for.
        row: usize,
        /// The last row there is.
        last: usize,
        /// Rows of the code.
        r: usize,
    },
    /// A label that the model has no output for.
    #[error(
        "the data have {classes} classes, the model only {outputs} outputs; give it the data it \
            was trained on"
    )]
    Classes {
        /// Classes of the data.
        classes: usize,
        /// Outputs of the model.
        outputs: usize,
    },
    /// An output without a top class, by which models are judged.
    #[error(
        "the model's output has {0}, but models are judged by the top class of one axis of class \
            scores"
    )]
    NoClasses(#[from] parapet_decoder::NotClassScores),
    /// Not enough samples for a coding group.
    #[error("{found} samples are too few: a coding group needs k = {k}")]
    TooFewSamples {
        /// Samples there are.
        found: usize,
        /// Queries in a group.
        k: usize,
    },
    /// A learned code's networks cannot be run as they will be served.
    #[error(transparent)]
    LearnedCode(#[from] parapet_onnx::learned_code::LearnedCodeError),
    /// ONNX Runtime is not there.
    #[error(transparent)]
    Runtime(#[from] parapet_onnx::runtime::RuntimeError),
    /// Training ran away.
    #[error("training diverged at step {step} (the loss is not finite); lower --learning-rate")]
    Diverged { step: usize },
    /// The model repository cannot be read or written.
    #[error(transparent)]
    Repository(#[from] parapet_config::repository::RepositoryError),
    /// A file or folder cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The trained model cannot be written into the repository.
    #[error(
        "{}: cannot write the entry: {source}; make room, then the same command with --resume \
            writes it without training again",
        path.display()
    )]
    Entry {
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A report that should be there cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Report {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A group was put together wrongly.
    #[error("cannot encode a group: {0}")]
    Encode(#[from] parapet_encoder::EncodeError),
    /// A prediction could not be reconstructed.
    #[error("cannot decode a group: {0}")]
    Decode(#[from] parapet_decoder::DecodeError),
}

impl TrainError {
    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::Code(_) | Self::Row { .. } | Self::Classes { .. } => true,
            Self::TooFewSamples { .. } | Self::NoClasses(_) | Self::Repository(_) => true,
            Self::Setup(error) => error.is_input(),
            Self::Deployed(error) => error.is_input(),
            Self::Run(error) => error.is_input(),
            Self::Network(error) => {
                matches!(
                    error,
                    NetworkError::Name { .. }
                        | NetworkError::Input { .. }
                        | NetworkError::Output { .. }
                        | NetworkError::NoOnnx { .. }
                        | NetworkError::Load { .. }
                        | NetworkError::Missing { .. }
                        | NetworkError::Start { .. }
                        | NetworkError::Script { .. }
                )
            }
            Self::Diverged { .. }
            | Self::Write { .. }
            | Self::Entry { .. }
            | Self::Report { .. }
            | Self::Encode(_)
            | Self::Decode(_)
            | Self::Backend(_)
            | Self::Cluster(_)
            | Self::LearnedCode(_)
            | Self::Runtime(_) => false,
        }
    }
}

/// Settings that cannot be used. One line that names the setting and the fix.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file of settings cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A setting that is unknown or of the wrong kind.
    #[error("{place}: {problem}")]
    Config {
        /// The file of settings, or the command line.
        place: String,
        problem: String,
    },
    /// A setting without a default is not given.
    #[error("--{name} is needed, here or as `{name}` in the file that --config names")]
    Needed { name: &'static str },
    /// libtorch does not see the device.
    #[error(
        "--device {name}: libtorch sees {cards} such devices; give --device cpu, or set LIBTORCH \
            to a PyTorch with CUDA and build anew"
    )]
    Device { name: String, cards: i64 },
    /// A number out of its range.
    #[error("--{name} {value}: out of range; give a number {range}")]
    Range {
        name: &'static str,
        value: f64,
        range: String,
    },
    /// Parity models that are not of one code.
    #[error(
        "--parity: {first} and {second} are not rows of one code: {problem}; name the parity \
            models of one training"
    )]
    Codes {
        first: String,
        second: String,
        problem: &'static str,
    },
    /// A setting that the encoder has no use for.
    #[error("--{name}: {problem}")]
    Misplaced {
        name: &'static str,
        problem: &'static str,
    },
    /// The user has ended the run.
    #[error("interrupted; {hint}")]
    Interrupted { hint: String },
    /// Another command cannot be run.
    #[error("cannot run a command of this program: {source}")]
    Child { source: std::io::Error },
    /// Rows of the table that failed.
    #[error("failed: {rows}; RESULTS.md says how, the same command tries again")]
    Rows { rows: String },
    /// Signals cannot be heard.
    #[error("cannot listen for Ctrl-C: {source}")]
    Signal { source: std::io::Error },
}

impl SetupError {
    /// A mistake in the file of settings at `place`, or on the command line.
    pub fn config(place: Option<&std::path::Path>, problem: &str) -> Self {
        let place = place.map_or("the command line".to_owned(), |path| {
            path.display().to_string()
        });
        let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Config { place, problem }
    }

    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::Interrupted { .. } | Self::Signal { .. } | Self::Child { .. } | Self::Rows { .. }
        )
    }
}
