//! How networks are named: `lenet`, `lenet:48`, `mlp:784,200,100`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A network's architecture, without its outputs, which the data decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSpec {
    /// Fully connected: the length of the input, then the hidden layers' widths, ReLU between.
    Mlp {
        /// Input length and hidden widths.
        widths: Vec<usize>,
    },
    /// After LeNet-5: two convolutions of `width` and twice `width` channels, each with ReLU and 2 x 2 max pooling, a
    /// hidden layer of 8 times `width`, and the output layer.
    LeNet {
        /// Channels of the first convolution.
        width: usize,
        /// Side of both kernels, pixels.
        kernel: usize,
    },
}

/// A network that cannot be built, loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The name means nothing.
    #[error(
        "network `{name}`: {reason}; write `lenet`, `lenet:WIDTH`, or `mlp:INPUTS,HIDDEN,...` such as `mlp:784,200,100`"
    )]
    Name {
        /// What was written.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The network takes other samples.
    #[error("network `{network}` takes samples of {wanted}, the data's have shape {shape:?}; {fix}")]
    Input {
        /// The network.
        network: NetworkSpec,
        /// What it takes.
        wanted: String,
        /// What the data are.
        shape: Vec<usize>,
        /// What to do.
        fix: String,
    },
    /// The weights' file cannot be used.
    #[error("{}: no weights of a `{network}`: {source}; train the model again", path.display())]
    Load {
        /// The file.
        path: PathBuf,
        /// The network it should hold.
        network: NetworkSpec,
        /// What libtorch said.
        source: tch::TchError,
    },
    /// The weights' file cannot be written.
    #[error("{}: cannot write the weights: {source}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// What libtorch said.
        source: tch::TchError,
    },
    /// A weight could not be read back from libtorch.
    #[error("cannot export the network: {0}")]
    Tensor(#[from] tch::TchError),
    /// The exported graph does not fit together.
    #[error("cannot export the network: {0}")]
    Export(#[from] parapet_onnx::BuildError),
}

const LENET_WIDTH: usize = 32;
const LENET_KERNEL: usize = 5;
/// Hidden units for each channel of the first convolution.
const LENET_HIDDEN: usize = 8;
const WIDTH_MAX: usize = 65_536;

impl NetworkSpec {
    pub(super) fn check_mlp_input(&self, shape: &[usize]) -> Result<usize, NetworkError> {
        let length = shape.iter().product();
        match self {
            Self::Mlp { widths } if widths.first() == Some(&length) => Ok(length),
            Self::Mlp { widths } => {
                let wanted = format!("{} values", widths.first().copied().unwrap_or_default());
                Err(self.input(wanted, shape, format!("write `mlp:{length},...`")))
            }
            Self::LeNet { .. } => Ok(length),
        }
    }

    pub(super) fn check_lenet_input(&self, shape: &[usize]) -> Result<[usize; 3], NetworkError> {
        let Self::LeNet { kernel, .. } = self else {
            return Ok([0; 3]);
        };
        // Two rounds of a convolution without padding and a halving must leave a pixel.
        let smallest = 2 * (2 + kernel - 1) + kernel - 1;
        match shape {
            &[channels, height, width] if height >= smallest && width >= smallest => {
                Ok([channels, height, width])
            }
            _ => {
                let length: usize = shape.iter().product();
                let wanted = format!("[channels, height, width], height and width at least {smallest}");
                Err(self.input(wanted, shape, format!("use an MLP such as `mlp:{length},200,100`")))
            }
        }
    }

    pub(super) fn lenet_hidden(&self) -> usize {
        match self {
            Self::LeNet { width, .. } => LENET_HIDDEN * width,
            Self::Mlp { .. } => 0,
        }
    }

    fn input(&self, wanted: String, shape: &[usize], fix: String) -> NetworkError {
        NetworkError::Input { network: self.clone(), wanted, shape: shape.to_vec(), fix }
    }
}

impl FromStr for NetworkSpec {
    type Err = NetworkError;

    fn from_str(name: &str) -> Result<Self, NetworkError> {
        let wrong = |reason| NetworkError::Name { name: name.to_owned(), reason };
        let width = |text: &str| match text.trim().parse() {
            Ok(width @ 1..=WIDTH_MAX) => Ok(width),
            _ => Err(wrong("a width is a whole number from 1 to 65536")),
        };
        match name.split_once(':').unwrap_or((name, "")) {
            ("lenet", "") => Ok(Self::LeNet { width: LENET_WIDTH, kernel: LENET_KERNEL }),
            ("lenet", text) => Ok(Self::LeNet { width: width(text)?, kernel: LENET_KERNEL }),
            ("mlp", "") => Err(wrong("an MLP needs its widths")),
            ("mlp", widths) => {
                Ok(Self::Mlp { widths: widths.split(',').map(width).collect::<Result<_, _>>()? })
            }
            _ => Err(wrong("no such network")),
        }
    }
}

impl fmt::Display for NetworkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeNet { width: LENET_WIDTH, .. } => f.write_str("lenet"),
            Self::LeNet { width, .. } => write!(f, "lenet:{width}"),
            Self::Mlp { widths } => {
                let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
                write!(f, "mlp:{}", widths.join(","))
            }
        }
    }
}
