//! Gradients as sufficient factors.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{MODERATE, Shared, all};

/// Columns of the product that are summed at a time: the sums stay in the processor's registers.
const PANEL: usize = 32;

/// Magnitude up to which factors are moderate, if their rank is too: so is their product.
const MODERATE_FACTOR: f32 = 1_048_576.0;
const MODERATE_RANK: usize = (MODERATE / (MODERATE_FACTOR * MODERATE_FACTOR)) as usize;

/// A window of the gradient of a fully connected layer's weights, as the two factors that it is a
/// product of: for each sample of a batch, the gradient of the layer's outputs and its inputs (Xie
/// et al., "Lighter-Communication Distributed Machine Learning via Sufficient Factor Broadcasting",
/// UAI 2016).
///
/// With M outputs, N inputs and K samples they are `K (M + N)` numbers in place of `M N`. All that
/// multiply them do so in the same order, so that replicas stay equal (PS-5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    rank: usize,
    width: usize,
    /// Numbers of the first row that come before the window.
    skipped: usize,
    len: usize,
    /// `rank` numbers for each row that the window touches, then `rank` rows of the right factor.
    #[serde(skip)]
    numbers: Shared<f32>,
}

impl Factors {
    /// The product of `left`, `[rows, rank]`, and `right`, `[rank, width]`; both row-major.
    pub fn new(rank: usize, left: &[f32], right: &[f32]) -> Self {
        let (rows, width) = (left.len() / rank.max(1), right.len() / rank.max(1));
        let numbers = [left, right].concat().into();
        Self { rank, width, skipped: 0, len: rows.saturating_mul(width), numbers }
    }

    /// The product times `factor`.
    #[must_use]
    pub fn scaled(self, factor: f32) -> Self {
        let (left, right) = self.sides();
        let left = left.iter().map(|number| number * factor);
        let numbers = left.chain(right.iter().copied()).collect::<Vec<f32>>().into();
        Self { numbers, ..self }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub const fn numbers_mut(&mut self) -> &mut Shared<f32> {
        &mut self.numbers
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.numbers.as_bytes()
    }

    fn sides(&self) -> (&[f32], &[f32]) {
        let right = self.rank.saturating_mul(self.width).min(self.numbers.len());
        self.numbers.split_at(self.numbers.len() - right)
    }

    /// Part of the window; what lies beyond it is left out.
    pub(super) fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len);
        let (start, width) = (range.start.min(end), self.width.max(1));
        let (first, last) = (self.skipped + start, self.skipped + end);
        let rows = first / width..last.div_ceil(width).max(first / width);
        let (left, right) = self.sides();
        let left = left.get(rows.start * self.rank..rows.end * self.rank).unwrap_or_default();
        let (skipped, len) = (first - rows.start * width, end - start);
        Self { skipped, len, numbers: [left, right].concat().into(), ..*self }
    }

    /// The sum of windows of the same place, in their order; `None` if they differ.
    pub(crate) fn join(all: &[&Self]) -> Option<Self> {
        let (first, rest) = all.split_first()?;
        let place = |one: &Self| (one.width, one.skipped, one.len);
        if rest.iter().any(|other| place(other) != place(first)) {
            return None;
        }
        let rank = all.iter().map(|one| one.rank).sum();
        let rows = (first.skipped + first.len).div_ceil(first.width.max(1));
        let sides = Vec::from_iter(all.iter().map(|one| (one.rank, one.sides())));
        let row = |row: usize| {
            let parts = sides.iter();
            parts.flat_map(move |(rank, (left, _))| left.get(row * rank..(row + 1) * rank))
        };
        let mut numbers = (0..rows).flat_map(row).flatten().copied().collect::<Vec<f32>>();
        sides.iter().for_each(|(_, (_, right))| numbers.extend_from_slice(right));
        Some(Self { rank, numbers: numbers.into(), ..**first })
    }

    /// Returns true if they take fewer numbers than their product.
    pub(crate) fn are_fewer(&self) -> bool {
        self.numbers.len() < self.len
    }

    /// Returns true if there are as many numbers as the window asks for.
    pub(super) fn fit(&self) -> bool {
        let end = self.skipped.checked_add(self.len);
        let rows = end.map(|end| end.div_ceil(self.width.max(1)));
        let numbers = rows.and_then(|rows| rows.checked_add(self.width)?.checked_mul(self.rank));
        // Without samples, any length would fit.
        self.rank > 0 && self.skipped < self.width && numbers == Some(self.numbers.len())
    }

    pub(super) fn first_not_finite(&self) -> Option<usize> {
        self.numbers.iter().position(|number| !number.is_finite())
    }

    pub(super) fn is_moderate(&self) -> bool {
        let is_small = |number: &f32| number.abs() <= MODERATE_FACTOR;
        self.rank <= MODERATE_RANK && all(&self.numbers, is_small)
    }

    /// The window of the product: each number is a sum over the samples, in their order.
    #[allow(clippy::needless_range_loop, reason = "iterators are not always inlined here")]
    pub(super) fn product(&self) -> Vec<f32> {
        let (left, right) = self.sides();
        let (width, rank) = (self.width.max(1), self.rank.max(1));
        let mut product = vec![0.0; self.len];
        for from in (0..width).step_by(PANEL) {
            let panel = right.chunks_exact(width).map(|inputs| {
                let mut own = [0.0; PANEL];
                own.iter_mut().zip(&inputs[from..]).for_each(|(own, input)| *own = *input);
                own
            });
            let panel = Vec::from_iter(panel);
            for (row, left) in left.chunks_exact(rank).enumerate() {
                let mut sums = [0.0; PANEL];
                for (factor, inputs) in left.iter().zip(&panel) {
                    for at in 0..PANEL {
                        sums[at] += factor * inputs[at];
                    }
                }
                // The panel's part of the row, within the window.
                let begin = row * width + from;
                let start = begin.max(self.skipped);
                let end = (row * width + width.min(from + PANEL)).min(self.skipped + self.len);
                let within = start - self.skipped..end.max(start) - self.skipped;
                let numbers = product.get_mut(within).unwrap_or_default();
                if let Some(sums) = sums.get(start - begin..start - begin + numbers.len()) {
                    numbers.copy_from_slice(sums);
                }
            }
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7 + seed * 13) as f32).sin()).collect()
    }

    fn factors(rank: usize, rows: usize, width: usize, seed: usize) -> Factors {
        Factors::new(rank, &numbers(rows * rank, seed), &numbers(rank * width, seed + 1))
    }

    proptest! {
        /// To the bit, so that a sum does not depend on how shards lie, or who has joined it.
        #[test]
        fn windows_of_sums_are_those_of_the_whole_sum(
            ranks in prop::collection::vec(1usize..5, 1..4), rows in 1usize..9,
            width in prop_oneof![1usize..20, 500usize..1100], from in 0.0..1.0, to in 0.0..1.0,
        ) {
            let parts: Vec<Factors> =
                ranks.iter().enumerate().map(|(i, &rank)| factors(rank, rows, width, i)).collect();
            let join = |parts: &[Factors]| Factors::join(&parts.iter().collect::<Vec<_>>()).unwrap();
            let whole = join(&parts);
            let product = whole.product();
            prop_assert!(whole.fit());
            for row in 0..rows {
                for column in 0..width {
                    let mut sum = 0.0f32;
                    for (part, rank) in parts.iter().zip(&ranks) {
                        let (left, right) = part.sides();
                        for k in 0..*rank {
                            sum += left[row * rank + k] * right[k * width + column];
                        }
                    }
                    prop_assert_eq!(product[row * width + column].to_bits(), sum.to_bits());
                }
            }
            let at = |share: f64| (share * product.len() as f64) as usize;
            let window = at(from).min(at(to))..at(from).max(at(to));
            let slices: Vec<Factors> =
                parts.iter().map(|part| part.slice(window.clone())).collect();
            let joined = join(&slices);
            prop_assert!(joined.fit() && slices.iter().all(Factors::fit));
            prop_assert_eq!(&joined, &whole.slice(window.clone()));
            prop_assert_eq!(joined.product(), &product[window.clone()]);
            let middle = window.len() / 2;
            prop_assert_eq!(joined.slice(middle..usize::MAX).product(),
                &product[window.start + middle..window.end]);
        }
    }

    #[test]
    fn factors_of_a_wrong_shape_do_not_fit() {
        let fitting = factors(3, 4, 5, 1);
        assert!(fitting.fit() && fitting.are_fewer() == (3 * 9 < 20));
        for wrong in [
            Factors { rank: 2, ..fitting.clone() },
            Factors { width: 3, ..fitting.clone() },
            Factors { skipped: 5, len: 15, ..fitting.clone() },
            Factors { len: usize::MAX, ..fitting.clone() },
            Factors { width: usize::MAX, ..fitting.clone() },
            Factors { rank: usize::MAX, width: 0, ..fitting.clone() },
            Factors { rank: 0, numbers: Shared::default(), ..fitting },
        ] {
            assert!(!wrong.fit(), "{wrong:?}");
        }
    }

    #[test]
    fn moderate_factors_have_a_moderate_product() {
        let moderate =
            |rank: usize, number: f32| Factors::new(rank, &vec![number; rank], &vec![number; rank]);
        assert!(moderate(MODERATE_RANK, MODERATE_FACTOR).is_moderate());
        assert!(moderate(MODERATE_RANK, MODERATE_FACTOR).product()[0] <= MODERATE);
        assert!(!moderate(MODERATE_RANK + 1, 1.0).is_moderate());
        assert!(!moderate(1, 2.0 * MODERATE_FACTOR).is_moderate());
        assert_eq!(moderate(2, f32::NAN).first_not_finite(), Some(0));
    }
}
