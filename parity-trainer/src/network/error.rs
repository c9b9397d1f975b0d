//! Errors of networks.

use std::path::PathBuf;

/// A network that cannot be built, loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "network `{name}`: {reason}; write `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL`, \
            `resnet8`, `resnet14`, `resnet20`, `resnet18` or `vgg11`, each with `:WIDTH` \
            (channels of the first convolution) or `xFACTOR`, `mlp:INPUTS,HIDDEN,...` such as \
            `mlp:784,200,100`, `cells:ROWSxCOLUMNS:NETWORK`, `dilated:CHANNELS` or \
            `script:FILE.pt`"
    )]
    Name { name: String, reason: &'static str },
    #[error(
        "network `{network}` takes samples of {wanted}, the data's have shape {shape:?}; {fix}"
    )]
    Input {
        network: String,
        wanted: String,
        shape: Vec<usize>,
        fix: String,
    },
    #[error(
        "network `{network}` gives images of {plane} pixels a channel, not {outputs} values; it \
            is for learned encoders"
    )]
    Output {
        network: String,
        outputs: usize,
        plane: usize,
    },
    #[error("{}: {problem}; {fix}", path.display())]
    Script {
        path: PathBuf,
        problem: String,
        fix: &'static str,
    },
    #[error(
        "network `{network}` is a TorchScript module and cannot be written as ONNX; write it as \
            TorchScript, which instances built with the feature `torch` serve"
    )]
    NoOnnx { network: String },
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
    #[error("{}: no weights of a `{network}`: {source}; train the model again", path.display())]
    Load {
        path: PathBuf,
        network: String,
        source: tch::TchError,
    },
    #[error(
        "{}: no weights of a `{network}`: {variable} is missing; train the model again",
        path.display()
    )]
    Missing {
        path: PathBuf,
        network: String,
        variable: String,
    },
    #[error(
        "{}: has {what}, so a `{network}` cannot begin with it; name a model of the same layers, \
            or of those of one cell",
        path.display()
    )]
    Start {
        path: PathBuf,
        network: String,
        what: String,
    },
    #[error("{}: cannot write the weights: {source}", path.display())]
    Save {
        path: PathBuf,
        source: tch::TchError,
    },
    #[error("cannot export the network: {0}")]
    Tensor(#[from] tch::TchError),
    #[error("cannot export the network: {0}")]
    Export(#[from] parapet_onnx::BuildError),
}
