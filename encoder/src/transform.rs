//! The output transform: in which domain predictions are added and subtracted.
//!
//! ParM (section 3.2) adds the deployed model's outputs as they are. Nothing in the method asks for
//! that: with any transform T of an output, the same in training and in decoding, a parity model
//! can be trained for `F_Pj(P_j) ~ sum_i a_ji T(F(X_i))`, and a missing `T(F(X_m))` is what the
//! decoder finds. T puts the outputs of badly scaled models on a scale that a network can fit. The
//! best one depends on the model, so the trainer chooses it on validation data. The parity model
//! gives its outputs in T's domain; it is never transformed itself.

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::CodeError;

/// Least log-probability that counts, where none is given: far below what any decision turns on.
pub const DEFAULT_FLOOR: f32 = -20.0;

/// Transform of each prediction before predictions are added or subtracted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutputTransform {
    /// Nothing, as in ParM.
    #[default]
    Raw,
    /// `(y - mean) / deviation`, with one entry for all of a sample's outputs, or one for each.
    Standardised {
        /// Value subtracted from each output.
        mean: Vec<f32>,
        /// Value that each output is divided by; above zero.
        deviation: Vec<f32>,
    },
    /// `max(y - ln(sum_c exp(y_c)), floor)`: for classifiers that give logits, the
    /// log-probabilities of one sample's outputs. Without the floor, outputs that say "certainly
    /// not" by different amounts would rule the sum.
    LogSoftmax {
        /// Least log-probability; below zero.
        #[serde(default = "default_floor")]
        floor: f32,
    },
}

fn default_floor() -> f32 {
    DEFAULT_FLOOR
}

/// Scale of a reconstruction's numbers, by its name in answers and in a model's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display)]
#[strum(serialize_all = "snake_case")]
pub enum OutputDomain {
    /// The deployed model's own outputs.
    Deployed,
    /// Log-probabilities of the classes, not normalised: the deployed model's order, not its level.
    LogProbabilities,
}

impl OutputTransform {
    /// Returns true if predictions are taken as they are.
    pub fn is_raw(&self) -> bool {
        *self == Self::Raw
    }

    /// Returns the scale that [`invert`](Self::invert) leads back to.
    pub const fn output_domain(&self) -> OutputDomain {
        match self {
            Self::Raw | Self::Standardised { .. } => OutputDomain::Deployed,
            Self::LogSoftmax { .. } => OutputDomain::LogProbabilities,
        }
    }

    /// Checks the transform for a model with `output_len` outputs a sample.
    ///
    /// # Errors
    /// [`CodeError`]: a number is out of range, or there are neither one nor `output_len`.
    pub fn validate(&self, output_len: usize) -> Result<(), CodeError> {
        self.check_numbers()?;
        match self {
            Self::Standardised { mean, .. } if mean.len() != 1 && mean.len() != output_len => {
                let problem =
                    format!("{} entries, the model has {output_len} outputs a sample", mean.len());
                Err(CodeError::new("transform", problem, format!("give 1 or {output_len}")))
            }
            Self::LogSoftmax { .. } if output_len < 2 => {
                let problem = format!(
                    "\"log_softmax\" needs two outputs a sample, the model has {output_len}"
                );
                Err(CodeError::new("transform.kind", problem, "use \"raw\" or \"standardised\""))
            }
            _ => Ok(()),
        }
    }

    /// Checks the numbers that need no model to be checked.
    pub(crate) fn check_numbers(&self) -> Result<(), CodeError> {
        match self {
            Self::Raw => Ok(()),
            Self::Standardised { mean, deviation } => {
                if mean.is_empty() || mean.len() != deviation.len() {
                    let (means, deviations) = (mean.len(), deviation.len());
                    let problem = format!("{means} means and {deviations} deviations");
                    let fix = "give one of each, or one for each output";
                    return Err(CodeError::new("transform", problem, fix));
                }
                check_all("mean", mean, "finite", f32::is_finite)?;
                check_all("deviation", deviation, "finite and above zero", |value| {
                    value.is_sign_positive() && value.is_normal()
                })
            }
            Self::LogSoftmax { floor } => {
                check_all("floor", &[*floor], "finite and below zero, like -20", |floor| {
                    floor.is_finite() && floor < 0.0
                })
            }
        }
    }

    /// Transforms the deployed model's outputs in place: one or more whole samples of
    /// `output_len` outputs each.
    pub fn apply(&self, outputs: &mut [f32], output_len: usize) {
        match self {
            Self::Raw => {}
            Self::Standardised { mean, deviation } => {
                for_each_scaled(outputs, mean, deviation, |y, mean, deviation| {
                    *y = (*y - mean) / deviation
                });
            }
            Self::LogSoftmax { floor } => {
                for sample in outputs.chunks_mut(output_len.max(1)) {
                    let level = log_sum_exp(sample);
                    for y in sample {
                        *y = (*y - level).max(*floor);
                    }
                }
            }
        }
    }

    /// Leads transformed outputs back to the deployed model's own domain, in place.
    /// Log-probabilities stay what they are: the level that the softmax took away is gone.
    pub fn invert(&self, coded: &mut [f32]) {
        if let Self::Standardised { mean, deviation } = self {
            for_each_scaled(coded, mean, deviation, |y, mean, deviation| {
                *y = *y * deviation + mean
            });
        }
    }

    /// `sums += weight * T(outputs)`, sample by sample of `output_len` outputs: what a decoder does
    /// with each prediction, without room for T(outputs).
    pub fn add_scaled(&self, weight: f32, outputs: &[f32], output_len: usize, sums: &mut [f32]) {
        match self {
            Self::Raw => {
                for (sum, y) in sums.iter_mut().zip(outputs) {
                    *sum += weight * y;
                }
            }
            Self::Standardised { mean, deviation } => {
                let chunk = mean.len().max(1);
                if let ([mean], [deviation]) = (mean.as_slice(), deviation.as_slice()) {
                    for (sum, y) in sums.iter_mut().zip(outputs) {
                        *sum += weight * ((y - mean) / deviation);
                    }
                    return;
                }
                for (sums, outputs) in sums.chunks_mut(chunk).zip(outputs.chunks(chunk)) {
                    for (((sum, y), mean), deviation) in
                        sums.iter_mut().zip(outputs).zip(mean).zip(deviation)
                    {
                        *sum += weight * ((y - mean) / deviation);
                    }
                }
            }
            Self::LogSoftmax { floor } => {
                let output_len = output_len.max(1);
                for (sums, sample) in sums.chunks_mut(output_len).zip(outputs.chunks(output_len)) {
                    let level = log_sum_exp(sample);
                    for (sum, y) in sums.iter_mut().zip(sample) {
                        *sum += weight * (y - level).max(*floor);
                    }
                }
            }
        }
    }
}

fn check_all(
    field: &str,
    values: &[f32],
    wanted: &str,
    is_good: impl Fn(f32) -> bool,
) -> Result<(), CodeError> {
    let Some(index) = values.iter().position(|value| !is_good(*value)) else { return Ok(()) };
    let field = match values {
        [_] => format!("transform.{field}"),
        _ => format!("transform.{field}[{index}]"),
    };
    Err(CodeError::new(field, values[index].to_string(), format!("give a number that is {wanted}")))
}

/// Calls `change` with each value and its mean and deviation; one entry stands for all values.
fn for_each_scaled(
    values: &mut [f32],
    mean: &[f32],
    deviation: &[f32],
    change: impl Fn(&mut f32, f32, f32),
) {
    if let ([mean], [deviation]) = (mean, deviation) {
        for y in values {
            change(y, *mean, *deviation);
        }
        return;
    }
    for sample in values.chunks_mut(mean.len().max(1)) {
        for ((y, mean), deviation) in sample.iter_mut().zip(mean).zip(deviation) {
            change(y, *mean, *deviation);
        }
    }
}

/// `ln(sum_c exp(y_c))`, without overflow, to a few units in the last place.
///
/// Written for several lanes side by side, which the compiler turns into vector instructions of any
/// processor: the exponentials are most of what decoding costs.
fn log_sum_exp(sample: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (chunks, rest) = sample.as_chunks::<LANES>();
    let mut tops = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (top, &y) in tops.iter_mut().zip(chunk) {
            *top = if y > *top { y } else { *top };
        }
    }
    let top = tops.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0f32; LANES];
    for chunk in chunks {
        for (sum, y) in sums.iter_mut().zip(chunk) {
            *sum += exp_below_zero(y - top);
        }
    }
    let sum: f32 =
        sums.iter().sum::<f32>() + rest.iter().map(|y| exp_below_zero(y - top)).sum::<f32>();
    top + sum.ln()
}

/// `exp(x)` for `x <= 0` to 2e-7 of itself, and 0 where that is below `f32`'s normal numbers; NaN
/// stays NaN. Without branches.
///
/// `x = n ln 2 + f` with `|f| <= ln(2) / 2`; `exp(f)` is its Taylor polynomial (the next term is
/// below 1e-8), and `2^n` is made from its bits (Cody and Waite, Software Manual for the Elementary
/// Functions, chapter 6).
fn exp_below_zero(x: f32) -> f32 {
    /// Adding it leaves the nearest whole number in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// `ln 2` in two pieces: the first has so few bits that its product with n is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    const LEAST: f32 = -87.0;
    let clamped = if x <= LEAST { LEAST } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let f = (clamped - n * LN_2[0]) - n * LN_2[1];
    let mut exp = 1.0 / 5040.0;
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        exp = exp * f + term;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()));
    let exp = exp * power;
    if x <= LEAST { 0.0 } else { exp }
}

#[cfg(test)]
mod tests;
