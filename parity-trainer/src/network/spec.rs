//! How networks are named: `lenet`, `lenet:48`, `lenet:16x3`, `mlp:784,200,100`, `cells:1x2:lenet:16x3`.

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
    /// For the parity queries of concatenation: the sum of one network's outputs over the cells of a grid.
    ///
    /// What a parity model has to learn there, `F(X_1) + .. + F(X_k)` from the shrunken images side by side, is such a
    /// sum. With the structure given, the network learns F on shrunken images, from k examples a group, and need not
    /// find out that what it learns of one cell holds for the others.
    Cells {
        /// Rows of the grid.
        rows: usize,
        /// Columns of the grid.
        columns: usize,
        /// The network for one cell.
        inner: Box<NetworkSpec>,
    },
}

/// A network that cannot be built, loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The name means nothing.
    #[error(
        "network `{name}`: {reason}; write `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL`, `mlp:INPUTS,HIDDEN,...` such as `mlp:784,200,100`, \
         or `cells:ROWSxCOLUMNS:NETWORK`"
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
        network: String,
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
        network: String,
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
            Self::LeNet { .. } | Self::Cells { .. } => Ok(length),
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
            Self::Mlp { .. } | Self::Cells { .. } => 0,
        }
    }

    /// The shape of a cell.
    pub(super) fn check_cells_input(&self, shape: &[usize]) -> Result<[usize; 3], NetworkError> {
        let Self::Cells { rows, columns, .. } = self else { return Ok([0; 3]) };
        match shape {
            &[channels, height, width]
                if height.is_multiple_of(*rows) && width.is_multiple_of(*columns) && height * width > 0 =>
            {
                Ok([channels, height / rows, width / columns])
            }
            _ => {
                let wanted = format!("[channels, height, width] that {rows} x {columns} cells divide evenly");
                Err(self.input(wanted, shape, "use the network without cells".to_owned()))
            }
        }
    }

    fn input(&self, wanted: String, shape: &[usize], fix: String) -> NetworkError {
        NetworkError::Input { network: self.to_string(), wanted, shape: shape.to_vec(), fix }
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
            ("lenet", text) => match text.split_once('x') {
                None => Ok(Self::LeNet { width: width(text)?, kernel: LENET_KERNEL }),
                Some((text, kernel)) => Ok(Self::LeNet { width: width(text)?, kernel: width(kernel)? }),
            },
            ("cells", text) => {
                let malformed = || wrong("cells need a grid and a network, such as `cells:1x2:lenet:16x3`");
                let (grid, inner) = text.split_once(':').ok_or_else(malformed)?;
                let (rows, columns) = grid.split_once('x').ok_or_else(malformed)?;
                let (rows, columns) = (width(rows)?, width(columns)?);
                match inner.parse()? {
                    Self::Cells { .. } => Err(wrong("cells cannot hold cells")),
                    inner => Ok(Self::Cells { rows, columns, inner: Box::new(inner) }),
                }
            }
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
            Self::LeNet { width: LENET_WIDTH, kernel: LENET_KERNEL } => f.write_str("lenet"),
            Self::LeNet { width, kernel: LENET_KERNEL } => write!(f, "lenet:{width}"),
            Self::LeNet { width, kernel } => write!(f, "lenet:{width}x{kernel}"),
            Self::Cells { rows, columns, inner } => write!(f, "cells:{rows}x{columns}:{inner}"),
            Self::Mlp { widths } => {
                let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
                write!(f, "mlp:{}", widths.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are() {
        for name in ["lenet", "lenet:16", "lenet:32x3", "mlp:784,200,100", "cells:1x2:lenet:16x3"] {
            assert_eq!(name.parse::<NetworkSpec>().unwrap().to_string(), name);
        }
        assert_eq!("lenet:32x5".parse::<NetworkSpec>().unwrap().to_string(), "lenet");
        for name in
            ["", "lenet:0", "lenet:x", "mlp", "mlp:", "mlp:7,", "cells:2:lenet", "cells:1x2:cells:1x2:lenet"]
        {
            assert!(name.parse::<NetworkSpec>().is_err(), "{name}");
        }
    }
}
