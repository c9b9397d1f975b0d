//! Names of networks: `lenet`, `lenet:48`, `lenet:16x3`, `resnet8:24`, `vgg11x0.5`,
//! `mlp:784,200,100`, `cells:1x2:lenet:16x3`, `dilated:40`, `script:module.pt`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::NetworkError;

/// A network's architecture, without its outputs, which the data decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSpec {
    /// Fully connected: the length of the input, then the hidden layers' widths, ReLU between.
    Mlp {
        /// Input length and hidden widths.
        widths: Vec<usize>,
    },
    /// After LeNet-5: two convolutions of `width` and twice `width` channels, each with ReLU and 2
    /// x 2 max pooling, a hidden layer of 8 times `width`, and the output layer.
    LeNet {
        /// Channels of the first convolution.
        width: usize,
        /// Side of both kernels, pixels.
        kernel: usize,
    },
    /// Residual, with batch norm (He et al. 2015), for images of any size.
    ResNet {
        depth: ResNetDepth,
        /// Channels of the first stage; each further stage has twice as many.
        width: usize,
    },
    /// VGG-11 with batch norm (Simonyan and Zisserman 2015, table 1, A), for images of any size:
    /// its poolings stop where the image has no more pixels, and one layer after global pooling
    /// stands for the three of its classifier.
    Vgg11 {
        /// Channels of the first convolution; the last has eight times as many.
        width: usize,
    },
    /// For learned encoders: 3 x 3 convolutions with dilations 1, 1, 2, 4, 8 and 1, which see the
    /// whole of a small image, and a 1 x 1 convolution to an image of the same size (Kosaian et
    /// al., arXiv 1806.01259, section 3).
    Dilated {
        /// Channels of all but the last; 20 for each query of a group in the paper.
        channels: usize,
    },
    /// For the parity queries of concatenation: the sum of one network's outputs over the cells
    /// of a grid.
    ///
    /// The target of a parity model, `F(X_1) + .. + F(X_k)` from the shrunken images side by
    /// side, is such a sum. With the structure given, the network learns F on shrunken
    /// images, from k examples a group, and need not find out that what it learns of one cell
    /// holds for the others.
    Cells {
        /// Rows of the grid.
        rows: usize,
        /// Columns of the grid.
        columns: usize,
        /// The network for one cell.
        inner: Box<NetworkSpec>,
    },
    /// The user's own module, as TorchScript: its parameters are where training begins. Its batch
    /// norms and dropouts stay as in inference, since what else they would learn could not be saved
    /// with the parameters.
    Script {
        /// The file, as `torch.jit.script(module).save` writes it.
        path: PathBuf,
    },
}

/// Residual networks by their number of weighted layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResNetDepth {
    /// Three stages of one block each.
    D8,
    /// Three stages of two.
    D14,
    /// Three stages of three (He et al. 2015, section 4.2, n = 3).
    D20,
    /// Four stages of two blocks (their table 1), with a 3 x 3 convolution and no pooling in front,
    /// as is usual for small images.
    D18,
}

impl ResNetDepth {
    /// Blocks of each stage.
    pub(super) fn blocks(self) -> &'static [usize] {
        match self {
            Self::D8 => &[1; 3],
            Self::D14 => &[2; 3],
            Self::D20 => &[3; 3],
            Self::D18 => &[2; 4],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::D8 => "resnet8",
            Self::D14 => "resnet14",
            Self::D20 => "resnet20",
            Self::D18 => "resnet18",
        }
    }

    fn default_width(self) -> usize {
        match self {
            Self::D8 | Self::D14 | Self::D20 => 16,
            Self::D18 => 64,
        }
    }
}

const RESNETS: [ResNetDepth; 4] = [
    ResNetDepth::D8,
    ResNetDepth::D14,
    ResNetDepth::D20,
    ResNetDepth::D18,
];
const LENET_WIDTH: usize = 32;
const LENET_KERNEL: usize = 5;
const VGG11_WIDTH: usize = 64;
/// For two queries.
const DILATED_CHANNELS: usize = 40;
const WIDTH_MAX: usize = 65_536;
/// Most channels of a deep network's first convolution: the last ones have eight times as many.
const CHANNELS_MAX: usize = 1024;

impl FromStr for NetworkSpec {
    type Err = NetworkError;

    fn from_str(name: &str) -> Result<Self, NetworkError> {
        let wrong = |reason| NetworkError::Name {
            name: name.to_owned(),
            reason,
        };
        let width = |text: &str| match text.trim().parse() {
            Ok(width @ 1..=WIDTH_MAX) => Ok(width),
            _ => Err(wrong("a width is a whole number from 1 to 65536")),
        };
        match name.split_once(':').unwrap_or((name, "")) {
            ("lenet", "") => Ok(Self::LeNet {
                width: LENET_WIDTH,
                kernel: LENET_KERNEL,
            }),
            ("lenet", text) => match text.split_once('x') {
                None => Ok(Self::LeNet {
                    width: width(text)?,
                    kernel: LENET_KERNEL,
                }),
                Some((text, kernel)) => Ok(Self::LeNet {
                    width: width(text)?,
                    kernel: width(kernel)?,
                }),
            },
            ("cells", text) => {
                let malformed =
                    || wrong("cells need a grid and a network, such as `cells:1x2:lenet:16x3`");
                let (grid, inner) = text.split_once(':').ok_or_else(malformed)?;
                let (rows, columns) = grid.split_once('x').ok_or_else(malformed)?;
                let (rows, columns) = (width(rows)?, width(columns)?);
                match inner.parse()? {
                    Self::Cells { .. } => Err(wrong("cells cannot hold cells")),
                    inner => Ok(Self::Cells {
                        rows,
                        columns,
                        inner: Box::new(inner),
                    }),
                }
            }
            ("script", "") => Err(wrong("a script needs its file, such as `script:module.pt`")),
            ("script", path) => Ok(Self::Script { path: path.into() }),
            ("mlp", "") => Err(wrong("an MLP needs its widths")),
            ("mlp", widths) => Ok(Self::Mlp {
                widths: widths.split(',').map(width).collect::<Result<_, _>>()?,
            }),
            (family, text) => Self::scaled(family, text).map_err(wrong),
        }
    }
}

impl NetworkSpec {
    /// Returns true if it can be written as ONNX; a user's module can only be
    /// written as TorchScript.
    pub fn exports_onnx(&self) -> bool {
        match self {
            Self::Script { .. } => false,
            Self::Cells { inner, .. } => inner.exports_onnx(),
            Self::Mlp { .. } | Self::LeNet { .. } | Self::ResNet { .. } => true,
            Self::Vgg11 { .. } | Self::Dilated { .. } => true,
        }
    }

    /// The networks that are named `FAMILY`, `FAMILY:WIDTH` or `FAMILYxFACTOR`.
    fn scaled(family: &str, text: &str) -> Result<Self, &'static str> {
        let (family, factor) = match family.split_once('x') {
            Some((family, factor)) if text.is_empty() => (family, factor),
            Some(_) => return Err("give a width or a factor, not both"),
            None => (family, ""),
        };
        let depth = RESNETS.into_iter().find(|depth| depth.name() == family);
        let default = match (depth, family) {
            (Some(depth), _) => depth.default_width(),
            (None, "vgg11") => VGG11_WIDTH,
            (None, "lenet") => LENET_WIDTH,
            (None, "dilated") => DILATED_CHANNELS,
            (None, _) => return Err("no such network"),
        };
        let width = match (text, factor) {
            ("", "") => default,
            ("", factor) => match factor.parse::<f64>() {
                Ok(factor) => (default as f64 * factor).round() as usize,
                Err(_) => return Err("a factor is a number, such as `vgg11x0.5`"),
            },
            (width, _) => width.trim().parse().unwrap_or_default(),
        };
        if !(1..=CHANNELS_MAX).contains(&width) {
            return Err("the first convolution has from 1 to 1024 channels");
        }
        Ok(match depth {
            Some(depth) => Self::ResNet { depth, width },
            None if family == "dilated" => Self::Dilated { channels: width },
            None if family == "lenet" => Self::LeNet {
                width,
                kernel: LENET_KERNEL,
            },
            None => Self::Vgg11 { width },
        })
    }
}

impl fmt::Display for NetworkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeNet {
                width: LENET_WIDTH,
                kernel: LENET_KERNEL,
            } => f.write_str("lenet"),
            Self::LeNet {
                width,
                kernel: LENET_KERNEL,
            } => write!(f, "lenet:{width}"),
            Self::LeNet { width, kernel } => write!(f, "lenet:{width}x{kernel}"),
            Self::ResNet { depth, width } if *width == depth.default_width() => {
                f.write_str(depth.name())
            }
            Self::ResNet { depth, width } => write!(f, "{}:{width}", depth.name()),
            Self::Vgg11 { width: VGG11_WIDTH } => f.write_str("vgg11"),
            Self::Vgg11 { width } => write!(f, "vgg11:{width}"),
            Self::Dilated {
                channels: DILATED_CHANNELS,
            } => f.write_str("dilated"),
            Self::Dilated { channels } => write!(f, "dilated:{channels}"),
            Self::Cells {
                rows,
                columns,
                inner,
            } => write!(f, "cells:{rows}x{columns}:{inner}"),
            Self::Script { path } => write!(f, "script:{}", path.display()),
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
        let same = [
            "lenet",
            "lenet:16",
            "lenet:32x3",
            "mlp:784,200,100",
            "cells:1x2:lenet:16x3",
            "resnet8",
            "resnet14:24",
            "resnet20",
            "resnet18:8",
            "vgg11",
            "vgg11:16",
            "dilated",
            "dilated:60",
            "cells:2x2:resnet8:12",
            "script:a folder/net.pt",
            "cells:1x2:script:net.pt",
        ];
        for name in same {
            assert_eq!(name.parse::<NetworkSpec>().unwrap().to_string(), name);
        }
        let others = [
            ("lenet:32x5", "lenet"),
            ("lenetx0.5", "lenet:16"),
            ("vgg11x0.5", "vgg11:32"),
            ("resnet8x2", "resnet8:32"),
            ("resnet18:64", "resnet18"),
            ("cells:1x2:vgg11x0.25", "cells:1x2:vgg11:16"),
        ];
        for (name, canonical) in others {
            assert_eq!(name.parse::<NetworkSpec>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn names_that_mean_nothing_are_refused() {
        let names = [
            "",
            "lenet:0",
            "lenet:x",
            "script",
            "script:",
            "mlp",
            "mlp:",
            "mlp:7,",
            "cells:2:lenet",
            "cells:1x2:cells:1x2:lenet",
            "resnet",
            "resnet9",
            "resnet8:0",
            "resnet8:100000",
            "resnet8x0",
            "resnet8x1:4",
            "resnet8xx",
            "resnet8xNaN",
            "vgg11xinf",
            "vgg11:-1",
        ];
        for name in names {
            let error = name.parse::<NetworkSpec>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
