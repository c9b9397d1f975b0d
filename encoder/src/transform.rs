//! The output transform: in which domain predictions are added and subtracted.
//!
//! ParM (section 3.2) adds the deployed model's outputs as they are. Nothing in the method asks for
//! that: with any transform T of an output, the same in training and in decoding, a parity model
//! can be trained for `F_Pj(P_j) ~ sum_i a_ji T(F(X_i))`, and a missing `T(F(X_m))` is what the
//! decoder finds. T puts the outputs of badly scaled models on a scale that a network can fit. The
//! best one depends on the model, so the trainer chooses it on validation data. The parity model
//! gives its outputs in T's domain; it is never transformed itself.

use serde::{Deserialize, Serialize};

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

/// Scale that the numbers of a reconstruction are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputDomain {
    /// The deployed model's own outputs.
    Deployed,
    /// Log-probabilities of the classes, not normalised: their order is the deployed model's, their
    /// level is not.
    LogProbabilities,
}

impl OutputDomain {
    /// The name in answers and in a model's metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deployed => "deployed",
            Self::LogProbabilities => "log_probabilities",
        }
    }
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
    /// [`CodeError`] when a number is out of range, or there are neither one nor
    /// `output_len` of them.
    pub fn validate(&self, output_len: usize) -> Result<(), CodeError> {
        self.check_numbers()?;
        match self {
            Self::Standardised { mean, .. } if mean.len() != 1 && mean.len() != output_len => {
                Err(CodeError::TransformLength {
                    entries: mean.len(),
                    output_len,
                })
            }
            Self::LogSoftmax { .. } if output_len < 2 => {
                Err(CodeError::TransformOneOutput { output_len })
            }
            _ => Ok(()),
        }
    }

    /// Checks the numbers that need no model to be checked.
    pub(crate) fn check_numbers(&self) -> Result<(), CodeError> {
        match self {
            Self::Raw => {}
            Self::Standardised { mean, deviation } => {
                if mean.is_empty() || mean.len() != deviation.len() {
                    let (mean, deviation) = (mean.len(), deviation.len());
                    return Err(CodeError::TransformUnequal { mean, deviation });
                }
                if let Some(index) = mean.iter().position(|mean| !mean.is_finite()) {
                    return Err(CodeError::TransformMean {
                        index,
                        value: mean[index],
                    });
                }
                if let Some(index) = deviation
                    .iter()
                    .position(|&value| !(value.is_sign_positive() && value.is_normal()))
                {
                    return Err(CodeError::TransformDeviation {
                        index,
                        value: deviation[index],
                    });
                }
            }
            Self::LogSoftmax { floor } => {
                if !(floor.is_finite() && *floor < 0.0) {
                    return Err(CodeError::TransformFloor { floor: *floor });
                }
            }
        }
        Ok(())
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
    let top = tops
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
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
    for term in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        exp = exp * f + term;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()));
    let exp = exp * power;
    if x <= LEAST { 0.0 } else { exp }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_defaults_are_those_of_files() {
        let names =
            [OutputDomain::Deployed, OutputDomain::LogProbabilities].map(OutputDomain::name);
        assert_eq!(names, ["deployed", "log_probabilities"]);
        let read: OutputTransform = toml::from_str("kind = \"log_softmax\"").unwrap();
        assert_eq!(read, OutputTransform::LogSoftmax { floor: -20.0 });
        assert!(OutputTransform::Raw.is_raw() && !read.is_raw());
        assert!(read.validate(2).is_ok() && read.validate(1).is_err());
    }

    #[test]
    fn deviations_must_be_normal_and_above_zero() {
        for value in [
            0.0,
            -0.0,
            -1.0,
            f32::MIN_POSITIVE / 2.0,
            f32::NAN,
            f32::INFINITY,
        ] {
            let transform = OutputTransform::Standardised {
                mean: vec![0.0],
                deviation: vec![value],
            };
            let refused = transform.check_numbers();
            assert!(
                matches!(refused, Err(CodeError::TransformDeviation { index: 0, .. })),
                "{value}: {refused:?}"
            );
        }
    }

    fn transforms(output_len: usize) -> impl Strategy<Value = OutputTransform> {
        let standardised = |len| {
            let entries = |range| proptest::collection::vec(range, len);
            (entries(-50.0f32..50.0), entries(0.01f32..50.0))
                .prop_map(|(mean, deviation)| OutputTransform::Standardised { mean, deviation })
        };
        prop_oneof![
            Just(OutputTransform::Raw),
            standardised(1),
            standardised(output_len),
            (-30.0f32..-1.0).prop_map(|floor| OutputTransform::LogSoftmax { floor }),
        ]
    }

    proptest! {
        #[test]
        fn invert_undoes_apply_where_the_domain_is_the_deployed_models(
            transform in transforms(5),
            outputs in proptest::collection::vec(-100.0f32..100.0, 15),
        ) {
            prop_assert_eq!(transform.validate(5), Ok(()));
            let mut values = outputs.clone();
            transform.apply(&mut values, 5);
            let applied = values.clone();
            transform.invert(&mut values);
            match transform.output_domain() {
                OutputDomain::Deployed => {
                    for (back, y) in values.iter().zip(&outputs) {
                        prop_assert!((back - y).abs() < 1e-3, "{back} for {y}");
                    }
                }
                OutputDomain::LogProbabilities => prop_assert_eq!(values, applied),
            }
        }

        #[test]
        fn log_softmax_gives_log_probabilities_and_keeps_the_top_class(
            outputs in proptest::collection::vec(-100.0f32..100.0, 7),
        ) {
            let mut values = outputs.clone();
            OutputTransform::LogSoftmax { floor: -1e4 }.apply(&mut values, 7);
            let total: f64 = values.iter().map(|&y| f64::from(y).exp()).sum();
            prop_assert!((total - 1.0).abs() < 1e-4, "{total}");
            let mut clamped = outputs.clone();
            OutputTransform::LogSoftmax { floor: -20.0 }.apply(&mut clamped, 7);
            prop_assert!(clamped.iter().all(|&y| (-20.0..=1e-4).contains(&y)));
            let top = |values: &[f32]| {
                (0..7)
                    .max_by(|&a, &b| values[a].total_cmp(&values[b]).then(b.cmp(&a)))
                    .unwrap()
            };
            prop_assert_eq!(top(&clamped), top(&outputs));
        }

        #[test]
        fn adding_scaled_is_applying_scaling_and_adding(
            transform in transforms(4),
            outputs in proptest::collection::vec(-20.0f32..20.0, 12),
            weight in -3.0f32..3.0,
        ) {
            let mut sums = vec![0.5; 12];
            transform.add_scaled(weight, &outputs, 4, &mut sums);
            let mut applied = outputs;
            transform.apply(&mut applied, 4);
            for (sum, y) in sums.iter().zip(applied) {
                let expected = 0.5 + weight * y;
                prop_assert!(
                    (sum - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                    "{sum}, {expected}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn exponentials_are_exact_to_the_last_places(x in -86.9f32..=0.0) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_below_zero(x)) - exact).abs() / exact;
            prop_assert!(error < 2.5e-7, "exp({x}) is off by {error}");
        }

        #[test]
        fn the_level_is_that_of_the_definition(
            outputs in proptest::collection::vec(-300.0f32..300.0, 1..40),
        ) {
            let top = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = outputs
                .iter()
                .map(|&y| (f64::from(y) - f64::from(top)).exp())
                .sum();
            let exact = f64::from(top) + sum.ln();
            let level = f64::from(log_sum_exp(&outputs));
            prop_assert!(
                (level - exact).abs() <= 4e-7 * exact.abs().max(1.0),
                "{level} for {exact}"
            );
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut outputs = [0.5f32; 11];
            outputs[3] = bad;
            assert!(!log_sum_exp(&outputs).is_finite(), "{bad}");
        }
        assert_eq!(exp_below_zero(-1e30), 0.0);
    }

    #[test]
    fn what_does_not_fit_the_model_is_refused() {
        let standardised = |mean: &[f32], deviation: &[f32]| OutputTransform::Standardised {
            mean: mean.to_vec(),
            deviation: deviation.to_vec(),
        };
        let refused =
            |transform: OutputTransform, output_len| transform.validate(output_len).unwrap_err();
        assert!(matches!(
            refused(standardised(&[0.0, 1.0], &[1.0, 1.0]), 3),
            CodeError::TransformLength {
                entries: 2,
                output_len: 3
            }
        ));
        assert!(matches!(
            refused(standardised(&[0.0], &[]), 3),
            CodeError::TransformUnequal { .. }
        ));
        assert!(matches!(
            refused(standardised(&[], &[]), 3),
            CodeError::TransformUnequal { .. }
        ));
        assert!(matches!(
            refused(standardised(&[f32::NAN], &[1.0]), 3),
            CodeError::TransformMean { .. }
        ));
        for deviation in [0.0, -1.0, f32::INFINITY, 1e-42] {
            let error = refused(standardised(&[0.0], &[deviation]), 3);
            assert!(
                matches!(error, CodeError::TransformDeviation { index: 0, .. }),
                "{error}"
            );
        }
        for floor in [0.0, 1.0, f32::NEG_INFINITY, f32::NAN] {
            let error = refused(OutputTransform::LogSoftmax { floor }, 3);
            assert!(matches!(error, CodeError::TransformFloor { .. }), "{error}");
        }
        assert!(matches!(
            refused(OutputTransform::LogSoftmax { floor: -20.0 }, 1),
            CodeError::TransformOneOutput { output_len: 1 }
        ));
    }
}
