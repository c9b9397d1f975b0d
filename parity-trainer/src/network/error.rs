//! Errors of networks.

use std::path::PathBuf;

/// A network that cannot be built, loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The name means nothing.
    #[error(
        "network `{name}`: {reason}; write `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL`, \
            `resnet8`, `resnet14`, `resnet20`, `resnet18` or `vgg11`, each with `:WIDTH` \
            (channels of the first convolution) or `xFACTOR`, `mlp:INPUTS,HIDDEN,...` such as \
            `mlp:784,200,100`, `cells:ROWSxCOLUMNS:NETWORK`, `dilated:CHANNELS` or \
            `script:FILE.pt`"
    )]
    Name { name: String, reason: &'static str },
    /// The network takes other samples.
    #[error(
        "network `{network}` takes samples of {wanted}, the data's have shape {shape:?}; {fix}"
    )]
    Input {
        network: String,
        wanted: String,
        shape: Vec<usize>,
        fix: String,
    },
    /// A network that gives images where a few values are wanted.
    #[error(
        "network `{network}` gives images of {plane} pixels a channel, not {outputs} values; it \
            is for learned encoders"
    )]
    Output {
        network: String,
        outputs: usize,
        /// Pixels of a channel.
        plane: usize,
    },
    /// A user's module that cannot be trained for the data.
    #[error("{}: {problem}; {fix}", path.display())]
    Script {
        path: PathBuf,
        problem: String,
        fix: &'static str,
    },
    /// A network that ONNX has no words for.
    #[error(
        "network `{network}` is a TorchScript module and cannot be written as ONNX; write it as \
            TorchScript, which instances built with the feature `torch` serve"
    )]
    NoOnnx { network: String },
    /// A normalisation of other samples.
    #[error(
        "network `{network}`: a normalisation of {found} channels, samples have {wanted}; compute \
            it from samples of this shape"
    )]
    Normalisation {
        network: String,
        /// Channels (of images) or features (of vectors) it was computed for.
        found: usize,
        wanted: usize,
    },
    /// The weights' file cannot be used.
    #[error("{}: no weights of a `{network}`: {source}; train the model again", path.display())]
    Load {
        path: PathBuf,
        /// The network it should hold.
        network: String,
        source: tch::TchError,
    },
    /// The weights' file lacks some.
    #[error(
        "{}: no weights of a `{network}`: {variable} is missing; train the model again",
        path.display()
    )]
    Missing {
        path: PathBuf,
        /// The network it should hold.
        network: String,
        /// The first that is missing.
        variable: String,
    },
    /// Weights to begin with that are another network's.
    #[error(
        "{}: has {what}, so a `{network}` cannot begin with it; name a model of the same layers, \
            or of those of one cell",
        path.display()
    )]
    Start {
        path: PathBuf,
        /// The network that was to begin with it.
        network: String,
        what: String,
    },
    /// The weights' file cannot be written.
    #[error("{}: cannot write the weights: {source}", path.display())]
    Save {
        path: PathBuf,
        source: tch::TchError,
    },
    /// A weight could not be read back from libtorch.
    #[error("cannot export the network: {0}")]
    Tensor(#[from] tch::TchError),
    /// The exported graph does not fit together.
    #[error("cannot export the network: {0}")]
    Export(#[from] parapet_onnx::BuildError),
}
