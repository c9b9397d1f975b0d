//! Names of networks: `lenet`, `lenet:48`, `lenet:16x3`, `resnet8:24`,
//! `mlp:784,200,100`, `dilated:40`.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::TrainError;

/// A network's architecture, without its outputs, which the data decide.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum NetworkSpec {
    /// Fully connected: the length of the input, then the hidden layers' widths, ReLU between.
    Mlp {
        /// Input length and hidden widths; never empty.
        widths: Vec<usize>,
    },
    Convolutional {
        family: Family,
        /// Channels of the first convolution.
        width: usize,
    },
}

/// Convolutional networks, for images; all but LeNet take images of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// After LeNet-5: convolutions of `width` and twice `width` channels, each with ReLU and 2 x 2
    /// max pooling, a hidden layer of 8 times `width`, an output layer. With both kernels' side.
    LeNet(usize),
    /// Residual, with batch norm (He et al. 2015): blocks of each stage, channels twice the last's.
    ResNet(&'static [usize]),
    /// The same for sequences, `[1, steps, features]` of any number of steps: what is behind a
    /// sequence's last step is as if it were not there, so that padding changes nothing.
    Sequence(&'static [usize]),
    /// VGG-11 with batch norm (Simonyan and Zisserman 2015, table 1, A): its poolings stop where no
    /// pixels are left, and one layer after global pooling stands for its classifier's three.
    Vgg11,
    /// For learned encoders: dilated 3 x 3 convolutions, which see the whole of a small image, and
    /// a 1 x 1 convolution to an image of the same size (Kosaian et al., arXiv 1806.01259, section
    /// 3). `width` is of all but the last, 20 for each query of a group in the paper.
    Dilated,
}

/// Names and usual widths. ResNet-20 is of He et al., section 4.2, n = 3; ResNet-18 of their table
/// 1, with a 3 x 3 convolution and no pooling in front, as is usual for small images. ResNet-6 and
/// a strided ResNet-8 have no blocks before the first halving, which would be most of their work.
const FAMILIES: [(&str, Family, usize); 13] = [
    ("lenet", Family::LeNet(5), 32),
    ("resnet6", Family::ResNet(&[0, 1, 1]), 16),
    ("resnet8", Family::ResNet(&[1; 3]), 16),
    ("resnet8-strided", Family::ResNet(&[0, 1, 1, 1]), 16),
    ("resnet14", Family::ResNet(&[2; 3]), 16),
    ("resnet20", Family::ResNet(&[3; 3]), 16),
    ("resnet18", Family::ResNet(&[2; 4]), 64),
    ("sequence6", Family::Sequence(&[0, 1, 1]), 16),
    ("sequence8", Family::Sequence(&[1; 3]), 16),
    ("sequence8-strided", Family::Sequence(&[0, 1, 1, 1]), 16),
    ("sequence14", Family::Sequence(&[2; 3]), 16),
    ("vgg11", Family::Vgg11, 64),
    ("dilated", Family::Dilated, 40),
];
const WIDTH_MAX: usize = 65_536;
/// Most channels of the first convolution: the last ones may have eight times as many.
const CHANNELS_MAX: usize = 1024;

impl NetworkSpec {
    /// Returns true if they have the same layers, of whatever widths; ResNets of whatever depths.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mlp { widths: own }, Self::Mlp { widths: other }) => own.len() == other.len(),
            (
                Self::Convolutional { family: own, .. },
                Self::Convolutional { family: other, .. },
            ) => match (own, other) {
                (Family::ResNet(_), Family::ResNet(_)) => true,
                (Family::Sequence(_), Family::Sequence(_)) => true,
                _ => own == other,
            },
            _ => false,
        }
    }

    pub fn has_batch_norm(&self) -> bool {
        let Self::Convolutional { family, .. } = self else { return false };
        matches!(family, Family::ResNet(_) | Family::Sequence(_) | Family::Vgg11)
    }

    /// Returns true if it takes samples of any number of steps.
    pub fn is_of_sequences(&self) -> bool {
        matches!(self, Self::Convolutional { family: Family::Sequence(_), .. })
    }
}

impl FromStr for NetworkSpec {
    type Err = TrainError;

    fn from_str(name: &str) -> Result<Self, TrainError> {
        Self::parse(name).map_err(|reason| {
            TrainError::Input(format!(
                "network `{name}`: {reason}; write `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL`, \
                    `resnet6`, `resnet8`, `resnet8-strided`, `resnet14`, `resnet20`, `resnet18`, \
                    `vgg11`, or for sequences `sequence6`, `sequence8`, `sequence8-strided` or \
                    `sequence14`, each with `:WIDTH` (channels of the first convolution), \
                    `mlp:INPUTS,HIDDEN,...` such as `mlp:784,200,100`, or `dilated:CHANNELS`"
            ))
        })
    }
}

fn width(text: &str) -> Result<usize, &'static str> {
    match text.trim().parse() {
        Ok(width @ 1..=WIDTH_MAX) => Ok(width),
        _ => Err("a width is a whole number from 1 to 65536"),
    }
}

impl NetworkSpec {
    fn parse(name: &str) -> Result<Self, &'static str> {
        match name.split_once(':').unwrap_or((name, "")) {
            ("mlp", "") => Err("an MLP needs its widths"),
            ("mlp", text) => {
                Ok(Self::Mlp { widths: text.split(',').map(width).collect::<Result<_, _>>()? })
            }
            (family, text) => Self::parse_convolutional(family, text),
        }
    }

    /// The networks that are named `FAMILY` or `FAMILY:WIDTH`.
    fn parse_convolutional(name: &str, text: &str) -> Result<Self, &'static str> {
        let known = FAMILIES.into_iter().find(|(known, ..)| *known == name);
        let (_, mut family, usual) = known.ok_or("no such network")?;
        let mut text = text;
        if let (Family::LeNet(kernel), Some((before, side))) = (&mut family, text.split_once('x')) {
            *kernel = width(side)?;
            text = before;
        }
        let width = match text {
            "" => usual,
            text => text.trim().parse().unwrap_or_default(),
        };
        match width {
            1..=CHANNELS_MAX => Ok(Self::Convolutional { family, width }),
            _ => Err("the first convolution has from 1 to 1024 channels"),
        }
    }
}

impl fmt::Display for NetworkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convolutional { family, width } => {
                match (FAMILIES.iter().find(|(_, known, _)| known == family), family) {
                    (Some((name, _, usual)), _) if width == usual => f.write_str(name),
                    (Some((name, ..)), _) => write!(f, "{name}:{width}"),
                    (None, Family::LeNet(kernel)) => write!(f, "lenet:{width}x{kernel}"),
                    (None, _) => Err(fmt::Error),
                }
            }
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
    fn names_are_told_in_their_shortest_form() {
        let same = "lenet lenet:16 lenet:32x3 mlp:784,200,100 resnet8 resnet14:24 resnet20 resnet6 \
            resnet8-strided:8 resnet18:8 vgg11 vgg11:16 dilated dilated:60 sequence6 sequence14:8";
        let others = [("lenet:32x5", "lenet"), ("resnet18:64", "resnet18")];
        let same = same.split_whitespace().map(|name| (name, name));
        for (name, shortest) in same.chain(others) {
            assert_eq!(name.parse::<NetworkSpec>().unwrap().to_string(), shortest);
        }
    }

    #[test]
    fn names_that_mean_nothing_are_refused_in_one_line() {
        let names = " lenet:0 lenet:x script script:a.pt mlp mlp: mlp:7, cells:1x2:lenet \
            resnet resnet9 resnet8:0 resnet8:100000 resnet8x0 \
            resnet8x1:4 resnet8xx resnet8xNaN vgg11x0.5 vgg11:-1";
        for name in names.split(' ') {
            let error = name.parse::<NetworkSpec>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
