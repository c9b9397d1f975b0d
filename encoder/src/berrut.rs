//! Berrut's rational interpolation: codes that need no parity model.
//!
//! After *ApproxIFER* (Soleymani, Mahdavifar, Avestimehr, AAAI 2022), section 3; the interpolant is Berrut's (*Rational
//! functions for guaranteed and experimentally well-conditioned global interpolation*, 1988). Through values `f_i` at
//! points `x_0 > x_1 > ..` it is
//!
//! ```text
//! u(z) = sum_i l_i(z) f_i,   l_i(z) = (-1)^i / (z - x_i) / sum_j (-1)^j / (z - x_j)
//! ```
//!
//! and has no pole on the real line because the signs alternate. k queries are the values at k points; a coded query is
//! `u` at another point, a query like others, that any replica of the deployed model F answers. If F is smooth, its answers
//! are values of the smooth `F(u(z))`, and so those that are missing are interpolated from those that are there. A point
//! that is missing is left out *before* the signs are given, so that they alternate whatever is missing.
//!
//! - [`BerrutEncoder`] is the paper's form: no query is sent as it is, k + s coded ones are.
//! - [`EncoderKind::Berrut`](crate::EncoderKind::Berrut) is systematic, for serving: queries are sent as they are, and r coded
//!   ones beside them. Its rows are the `l_i` at [`parity_point`]s, so that [`SumEncoder`](crate::SumEncoder) makes them.

use std::f64::consts::PI;

use crate::sum::weighted_sum;
use crate::{CodeError, EncodeError, K_MAX, check_sizes};

/// The point of the query in `slot` of k: Chebyshev's of the first kind, `cos((2 slot + 1) pi / 2k)`.
pub fn member_point(k: usize, slot: usize) -> f64 {
    ((2 * slot + 1) as f64 * PI / (2 * k) as f64).cos()
}

/// The point of coded query `worker` of `workers`: `cos(worker pi / workers)`.
///
/// Not the authors' `cos(worker pi / (workers - 1))`: with one spare query those lie half way between those of the queries, so
/// that each coded query mixes two queries evenly. On an MNIST MLP with k = 8 and s = 1 that gives 73 % where these give 87 %
/// (`parity-trainer/results/berrut.md`).
pub fn worker_point(workers: usize, worker: usize) -> f64 {
    (worker as f64 * PI / workers.max(1) as f64).cos()
}

/// Which gap between members the coded query of `row` lies in: gap g is before the member of slot g. The r of them are
/// spread evenly, and differ for r <= k.
pub fn parity_gap(k: usize, r: usize, row: usize) -> usize {
    (2 * row + 1) * k / (2 * r.max(1))
}

/// The point of the coded query of `row` in the systematic form, `cos(gap pi / k)`: never that of a member.
pub fn parity_point(k: usize, r: usize, row: usize) -> f64 {
    (parity_gap(k, r, row) as f64 * PI / k as f64).cos()
}

/// Writes `l_i(at)` for each of the strictly falling (or rising) `points`; they add up to 1.
///
/// At a point itself the interpolant is that point's value.
pub fn interpolation_weights(points: &[f64], at: f64, weights: &mut [f64]) {
    if let Some(hit) = points.iter().position(|point| (at - point).abs() < 1e-12) {
        weights.fill(0.0);
        if let Some(weight) = weights.get_mut(hit) {
            *weight = 1.0;
        }
        return;
    }
    let (mut sign, mut sum) = (1.0, 0.0);
    for (weight, point) in weights.iter_mut().zip(points) {
        *weight = sign / (at - point);
        sum += *weight;
        sign = -sign;
    }
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// How much of each of k queries is in `u(at)`.
fn row_at(k: usize, at: f64) -> Vec<f32> {
    let points: Vec<f64> = (0..k).map(|slot| member_point(k, slot)).collect();
    let mut weights = vec![0.0; k];
    interpolation_weights(&points, at, &mut weights);
    weights.into_iter().map(|weight| weight as f32).collect()
}

/// The r rows of the systematic form.
pub(crate) fn rows(k: usize, r: usize) -> Vec<f32> {
    (0..r).flat_map(|row| row_at(k, parity_point(k, r, row))).collect()
}

/// The paper's form: k queries become k + s coded ones, of which any k answers decode.
#[derive(Debug, Clone)]
pub struct BerrutEncoder {
    k: usize,
    workers: usize,
    sample_len: usize,
    /// Row-major, workers x k.
    rows: Vec<f32>,
}

impl BerrutEncoder {
    /// An encoder of k queries of `sample_shape` (without the batch axis) into `k + spare`.
    ///
    /// # Errors
    /// [`CodeError`] when k is not in 2..=[`K_MAX`], `spare` not in 1..=[`K_MAX`], or the shape has no elements.
    pub fn new(k: usize, spare: usize, sample_shape: &[usize]) -> Result<Self, CodeError> {
        check_berrut_sizes(k, spare)?;
        let sample_len = sample_shape.iter().product();
        if sample_len == 0 {
            return Err(CodeError::EmptySample { shape: sample_shape.to_vec() });
        }
        let workers = k + spare;
        let rows = (0..workers).flat_map(|worker| row_at(k, worker_point(workers, worker))).collect();
        Ok(Self { k, workers, sample_len, rows })
    }

    /// A short name for logs and answers, like `berrut-k8-s1`.
    pub fn label(&self) -> String {
        format!("berrut-k{}-s{}", self.k, self.workers - self.k)
    }

    /// Coded queries of a group.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Writes coded query `worker` (`< workers`) of the k `queries` into `coded`; lengths as for
    /// [`Encoder::encode`](crate::Encoder::encode).
    ///
    /// # Errors
    /// [`EncodeError`] when the worker, the number of queries or a length does not fit.
    pub fn encode(&self, worker: usize, queries: &[&[f32]], coded: &mut [f32]) -> Result<(), EncodeError> {
        check_sizes((self.k, self.workers), self.sample_len, worker, queries, coded)?;
        let row = self.rows.get(worker * self.k..(worker + 1) * self.k).unwrap_or_default();
        weighted_sum(row, queries, coded);
        Ok(())
    }
}

/// What the paper's form asks of its sizes.
///
/// # Errors
/// [`CodeError`] when k is not in 2..=[`K_MAX`], or `spare` not in 1..=[`K_MAX`].
pub fn check_berrut_sizes(k: usize, spare: usize) -> Result<(), CodeError> {
    if !(2..=K_MAX).contains(&k) {
        return Err(CodeError::GroupSize { k, max: K_MAX });
    }
    if !(1..=K_MAX).contains(&spare) {
        return Err(CodeError::SpareQueries { spare, max: K_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn weights_add_up_and_are_finite_wherever_the_points_are(
            steps in proptest::collection::vec(0.01f64..1.0, 1..20),
            at in -3.0f64..12.0,
        ) {
            let points: Vec<f64> = steps.iter().scan(0.0, |x, step| { *x += step; Some(*x) }).collect();
            let mut weights = vec![f64::NAN; points.len()];
            interpolation_weights(&points, at, &mut weights);
            prop_assert!(weights.iter().all(|weight| weight.is_finite()));
            prop_assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }

        #[test]
        fn is_exact_at_its_points(k in 2usize..=16, slot in 0usize..16) {
            let slot = slot % k;
            let row = row_at(k, member_point(k, slot));
            let unit: Vec<f32> = (0..k).map(|i| f32::from(u8::from(i == slot))).collect();
            prop_assert_eq!(row, unit);
        }
    }

    #[test]
    fn coded_points_of_the_systematic_form_are_apart_from_each_other_and_from_members() {
        for k in 2..=16 {
            for r in 1..=k.min(4) {
                let mut points: Vec<f64> = (0..k).map(|slot| member_point(k, slot)).collect();
                points.extend((0..r).map(|row| parity_point(k, r, row)));
                points.sort_by(f64::total_cmp);
                assert!(
                    points.windows(2).all(|pair| pair[1] - pair[0] > 1e-3),
                    "k = {k}, r = {r}: {points:?}"
                );
            }
        }
    }

    #[test]
    fn a_coded_query_of_equal_queries_is_that_query() {
        let encoder = BerrutEncoder::new(5, 2, &[3]).unwrap();
        let query: &[f32] = &[0.25, -1.0, 4.0];
        for worker in 0..encoder.workers() {
            let mut coded = [f32::NAN; 3];
            encoder.encode(worker, &[query; 5], &mut coded).unwrap();
            assert!(coded.iter().zip(query).all(|(a, b)| (a - b).abs() < 1e-5), "{coded:?}");
        }
        let mut coded = [0.0; 3];
        assert_eq!(encoder.encode(7, &[query; 5], &mut coded), Err(EncodeError::NoSuchRow { row: 7, r: 7 }));
        assert_eq!(encoder.label(), "berrut-k5-s2");
        assert!(matches!(BerrutEncoder::new(1, 1, &[3]), Err(CodeError::GroupSize { .. })));
        assert!(matches!(BerrutEncoder::new(4, 0, &[3]), Err(CodeError::SpareQueries { .. })));
        assert!(matches!(BerrutEncoder::new(4, 1, &[0]), Err(CodeError::EmptySample { .. })));
    }
}
