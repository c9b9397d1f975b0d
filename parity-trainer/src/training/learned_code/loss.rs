//! Losses of learned codes (arXiv 1806.01259, section 4.2), on libtorch's tensors.

use parapet_encoder::OutputTransform;
use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};

/// Distance between a reconstruction and the deployed model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Loss {
    /// Mean squared error, in the transform's domain.
    Mse,
    /// Kullback-Leibler divergence of the softmaxes.
    Kl,
    /// Cross-entropy to the deployed model's class.
    CrossEntropy,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mse => "mse",
            Self::Kl => "kl",
            Self::CrossEntropy => "cross_entropy",
        })
    }
}

impl Loss {
    /// Of `made` against `wanted`, both `[count, outputs]` in `domain`: their mean.
    pub(super) fn of(self, domain: &Domain, made: &Tensor, wanted: &Tensor) -> Tensor {
        match self {
            Self::Mse => made.mse_loss(wanted, Reduction::Mean),
            Self::Kl => {
                let made = domain.invert(made).log_softmax(-1, Kind::Float);
                let wanted = domain.invert(wanted).log_softmax(-1, Kind::Float);
                (wanted.exp() * (wanted - made))
                    .sum_dim_intlist([-1i64].as_slice(), false, Kind::Float)
                    .mean(Kind::Float)
            }
            Self::CrossEntropy => {
                let classes = domain.invert(wanted).argmax(-1, false);
                domain.invert(made).cross_entropy_for_logits(&classes)
            }
        }
    }
}

/// A code's output transform on tensors whose last axis has one sample's outputs.
#[derive(Debug)]
pub(super) enum Domain {
    Raw,
    Standardised { mean: Tensor, deviation: Tensor },
    LogSoftmax { floor: f64 },
}

impl Domain {
    pub(super) fn of(transform: &OutputTransform) -> Self {
        match transform {
            OutputTransform::Raw => Self::Raw,
            OutputTransform::Standardised { mean, deviation } => Self::Standardised {
                mean: Tensor::from_slice(mean),
                deviation: Tensor::from_slice(deviation),
            },
            OutputTransform::LogSoftmax { floor } => Self::LogSoftmax {
                floor: f64::from(*floor),
            },
        }
    }

    /// As [`OutputTransform::apply`].
    pub(super) fn apply(&self, outputs: &Tensor) -> Tensor {
        match self {
            Self::Raw => outputs.shallow_clone(),
            Self::Standardised { mean, deviation } => {
                (outputs - mean.to_device(outputs.device())) / deviation.to_device(outputs.device())
            }
            Self::LogSoftmax { floor } => outputs.log_softmax(-1, Kind::Float).clamp_min(*floor),
        }
    }

    /// As [`OutputTransform::invert`].
    pub(super) fn invert(&self, outputs: &Tensor) -> Tensor {
        match self {
            Self::Standardised { mean, deviation } => {
                outputs * deviation.to_device(outputs.device()) + mean.to_device(outputs.device())
            }
            Self::Raw | Self::LogSoftmax { .. } => outputs.shallow_clone(),
        }
    }

    /// Returns the number of rows of `made` that name the class of `wanted`, and
    /// the number of rows.
    pub(super) fn agreeing(&self, made: &Tensor, wanted: &Tensor) -> (usize, usize) {
        let classes = |outputs: &Tensor| self.invert(outputs).argmax(-1, false);
        let equal = classes(made).eq_tensor(&classes(wanted));
        let agreeing = equal.sum(Kind::Int64).int64_value(&[]);
        (usize::try_from(agreeing).unwrap_or_default(), equal.numel())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_those_that_serving_applies() {
        let outputs = [4.0f32, -30.0, 1.0, 0.5, 0.25, 7.0];
        let transforms = [
            OutputTransform::Raw,
            OutputTransform::Standardised {
                mean: vec![1.0],
                deviation: vec![4.0],
            },
            OutputTransform::Standardised {
                mean: vec![1.0, 2.0, 3.0],
                deviation: vec![4.0, 5.0, 0.5],
            },
            OutputTransform::LogSoftmax { floor: -20.0 },
        ];
        for transform in transforms {
            let mut expected = outputs.to_vec();
            transform.apply(&mut expected, 3);
            let domain = Domain::of(&transform);
            let applied = domain.apply(&Tensor::from_slice(&outputs).view([2, 3]));
            let close = |tensor: &Tensor, expected: &[f32]| {
                let values = Vec::<f32>::try_from(tensor.contiguous().view([-1])).unwrap();
                assert!(
                    values
                        .iter()
                        .zip(expected)
                        .all(|(a, b)| (a - b).abs() < 1e-5),
                    "{values:?}, {expected:?}"
                );
            };
            close(&applied, &expected);
            let inverted = domain.invert(&applied);
            transform.invert(&mut expected);
            close(&inverted, &expected);
        }
    }

    #[test]
    fn every_loss_is_least_where_the_two_are_equal() {
        let wanted = Tensor::from_slice(&[3.0f32, 0.0, -3.0, -1.0, 2.0, 0.0]).view([2, 3]);
        let worse = Tensor::from_slice(&[0.0f32, 3.0, -3.0, 2.0, -1.0, 0.0]).view([2, 3]);
        let domain = Domain::of(&OutputTransform::Standardised {
            mean: vec![1.0],
            deviation: vec![2.0],
        });
        for loss in [Loss::Mse, Loss::Kl, Loss::CrossEntropy] {
            let of = |made: &Tensor| loss.of(&domain, made, &wanted).double_value(&[]);
            assert!(of(&wanted) < of(&worse), "{loss}");
            assert!(of(&wanted) >= 0.0, "{loss}");
        }
        assert!(Loss::Mse.of(&domain, &wanted, &wanted).double_value(&[]) < 1e-6);
        assert!(Loss::Kl.of(&domain, &wanted, &wanted).double_value(&[]) < 1e-6);
        assert_eq!(domain.agreeing(&worse, &wanted), (0, 2));
    }
}
