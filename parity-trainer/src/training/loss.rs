//! Losses of learned codes (arXiv 1806.01259, section 4.2) and of slots, on libtorch's tensors.

use parapet_decoder::Agreement;
use parapet_encoder::OutputTransform;
use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};

use crate::Result;
use crate::network::values;

/// Distance between a reconstruction and the deployed model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(clap::ValueEnum, strum::Display)]
#[strum(serialize_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Loss {
    /// Mean squared error, in the transform's domain.
    Mse,
    /// Kullback-Leibler divergence of the softmaxes.
    Kl,
}

impl Loss {
    /// Of `made` against `wanted`, both `[count, outputs]` in the transform's domain: their mean.
    pub(super) fn of(self, to: &OutputTransform, made: &Tensor, wanted: &Tensor) -> Tensor {
        match self {
            Self::Mse => made.mse_loss(wanted, Reduction::Mean),
            Self::Kl => {
                let [made, wanted] =
                    [made, wanted].map(|outputs| invert(to, outputs).log_softmax(-1, Kind::Float));
                let divergence = wanted.exp() * (wanted - made);
                divergence.sum_dim_intlist([-1i64].as_slice(), false, Kind::Float).mean(Kind::Float)
            }
        }
    }
}

/// [`OutputTransform::apply`] on a tensor whose last axis has one sample's outputs.
pub(super) fn apply(to: &OutputTransform, outputs: &Tensor) -> Tensor {
    let vector = |values: &[f32]| Tensor::from_slice(values).to_device(outputs.device());
    match to {
        OutputTransform::Raw => outputs.shallow_clone(),
        OutputTransform::Standardised { mean, deviation } => {
            (outputs - vector(mean)) / vector(deviation)
        }
        OutputTransform::LogSoftmax { floor } => {
            outputs.log_softmax(-1, Kind::Float).clamp_min(f64::from(*floor))
        }
    }
}

/// [`OutputTransform::invert`] on such a tensor.
pub(super) fn invert(to: &OutputTransform, outputs: &Tensor) -> Tensor {
    let vector = |values: &[f32]| Tensor::from_slice(values).to_device(outputs.device());
    match to {
        OutputTransform::Standardised { mean, deviation } => {
            outputs * vector(deviation) + vector(mean)
        }
        OutputTransform::Raw | OutputTransform::LogSoftmax { .. } => outputs.shallow_clone(),
    }
}

/// Returns the number of rows of `made` that agree with those of `wanted`.
pub(super) fn agreeing(
    agreement: &Agreement,
    to: &OutputTransform,
    made: &Tensor,
    wanted: &Tensor,
) -> Result<usize> {
    let [made, wanted] = [made, wanted].map(|outputs| values(&invert(to, outputs)));
    let (made, wanted, len) = (made?, wanted?, agreement.output_len());
    let pairs = made.chunks_exact(len).zip(wanted.chunks_exact(len));
    Ok(pairs.filter(|(made, wanted)| agreement.agrees(made, wanted)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standardised(mean: &[f32], deviation: &[f32]) -> OutputTransform {
        let (mean, deviation) = (mean.to_vec(), deviation.to_vec());
        OutputTransform::Standardised { mean, deviation }
    }

    #[test]
    fn transforms_are_those_that_serving_applies() {
        let outputs = [4.0f32, -30.0, 1.0, 0.5, 0.25, 7.0];
        for transform in [
            OutputTransform::Raw,
            standardised(&[1.0], &[4.0]),
            standardised(&[1.0, 2.0, 3.0], &[4.0, 5.0, 0.5]),
            OutputTransform::LogSoftmax { floor: -20.0 },
        ] {
            let assert_close = |tensor: &Tensor, expected: &[f32]| {
                let values = Vec::<f32>::try_from(tensor.contiguous().view([-1])).unwrap();
                for (value, expected) in values.iter().zip(expected) {
                    assert!((value - expected).abs() < 1e-5, "{value}, {expected}");
                }
            };
            let mut expected = outputs.to_vec();
            transform.apply(&mut expected, 3);
            let applied = apply(&transform, &Tensor::from_slice(&outputs).view([2, 3]));
            assert_close(&applied, &expected);
            transform.invert(&mut expected);
            assert_close(&invert(&transform, &applied), &expected);
        }
    }

    #[test]
    fn every_loss_is_least_where_the_two_are_equal() {
        let wanted = Tensor::from_slice(&[3.0f32, 0.0, -3.0, -1.0, 2.0, 0.0]).view([2, 3]);
        let worse = Tensor::from_slice(&[0.0f32, 3.0, -3.0, 2.0, -1.0, 0.0]).view([2, 3]);
        let to = standardised(&[1.0], &[2.0]);
        for loss in [Loss::Mse, Loss::Kl] {
            let of = |made: &Tensor| loss.of(&to, made, &wanted).double_value(&[]);
            assert!((0.0..of(&worse)).contains(&of(&wanted)), "{loss}");
            assert!(of(&wanted) < 1e-6, "{loss}");
        }
        let classes = Agreement::of(None, &[3]).unwrap();
        let agreeing = |made: &Tensor| agreeing(&classes, &to, made, &wanted).unwrap();
        assert_eq!((agreeing(&worse), agreeing(&wanted)), (0, 2));
    }
}
