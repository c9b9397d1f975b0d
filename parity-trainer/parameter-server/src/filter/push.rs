//! Filters that change what is pushed, with error feedback.
//!
//! Values that a push leaves out, because rounding or KKT took them, are kept and added to the next
//! push of the row: the sum of sent and kept values is the sum of the given ones (up to the
//! rounding of 32-bit additions). This serves rules that add up what they are given (SGD,
//! momentum); a rule that divides by the size of gradients (Adam, FTRL) sees other sizes and still
//! converges, less predictably. What is kept is lost with the worker.

use std::collections::HashMap;

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{ArrayFilters, Filter, Traffic};
use crate::{ArrayId, Key, KeyRange, Keys, Values, ValuesError};

/// Leaves out the rows of a push that would not change their weights, where an L1 penalty keeps
/// those at 0 (Li et al., OSDI 2014, section 5.1): a row whose weights are all 0 and whose
/// estimated global gradients are all within `threshold`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kkt {
    /// The most that a gradient may be to be left out; below the weight of the penalty.
    pub threshold: f32,
    /// Factor that makes this worker's gradient an estimate of the sum of all: the number of
    /// workers, where each has an equal part of the data.
    pub scale: f32,
    pub left_out: LeftOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// It is gone. For rules that judge each gradient by itself, as the paper's proximal step does.
    Dropped,
    /// It is added to the next gradient of its row, and their sum is judged. For rules that sum
    /// what they get (FTRL-proximal): small gradients in one direction make a weight in the end.
    KeptBack,
}

impl Kkt {
    fn has_effect(self, gradients: &[f32], weights: &[f32]) -> bool {
        let is_large = |gradient: &f32| (self.scale * gradient).abs() > self.threshold;
        weights.iter().any(|&weight| weight != 0.0) || gradients.iter().any(is_large)
    }
}

/// The format in which a push's numbers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Precision {
    #[default]
    F32,
    /// The upper half of a 32-bit float: its range, 8 bits of precision.
    Bf16,
    /// IEEE 754 binary16: 11 bits of precision between 6e-5 and 65,504.
    F16,
}

impl Precision {
    /// The nearest numbers of this format; beyond the largest, the largest: the receiver refuses
    /// infinities, and what is cut off is sent later.
    fn round(self, numbers: &[f32]) -> Values {
        let within = |most: f32| -> Vec<f32> {
            let numbers = numbers.iter();
            numbers.map(|number| number.clamp(-most, most)).collect()
        };
        let mut bits = vec![0u16; numbers.len()];
        match self {
            Self::F32 => Values::from(numbers.to_vec()),
            Self::Bf16 => {
                let bf16s = bits.reinterpret_cast_mut::<bf16>();
                bf16s.convert_from_f32_slice(&within(bf16::MAX.to_f32()));
                Values::Bf16(bits.into())
            }
            Self::F16 => {
                let f16s = bits.reinterpret_cast_mut::<f16>();
                f16s.convert_from_f32_slice(&within(f16::MAX.to_f32()));
                Values::F16(bits.into())
            }
        }
    }
}

type Row = SmallVec<[f32; 2]>;

/// The filters of one worker's pushes to one array: KKT, then precision. Each push is filtered
/// once, before it is submitted; see the [filters](crate::ArrayFilters).
#[derive(Debug, Clone)]
pub struct PushFilter {
    array: ArrayId,
    width: usize,
    filters: ArrayFilters,
    /// Rows that are still to be sent: found by key, as a push may name a few of millions.
    kept: HashMap<Key, Row>,
    traffic: Traffic,
}

impl PushFilter {
    /// For an array with rows of `width` numbers.
    pub fn new(array: ArrayId, width: usize, filters: ArrayFilters) -> Self {
        Self {
            array,
            width: width.max(1),
            filters,
            kept: HashMap::new(),
            traffic: Traffic::default(),
        }
    }

    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub fn kept_back(&self) -> usize {
        self.kept.len()
    }

    /// Returns the rows to push to `range` in place of these. `weights`, only for KKT, are the
    /// rows' present weights as they were pulled; without them nothing is left out.
    ///
    /// # Errors
    /// If keys and numbers do not fit, or a number is not finite. Nothing is kept of the push then:
    /// it can be corrected and filtered again.
    pub fn filter(
        &mut self,
        range: KeyRange,
        keys: &Keys,
        values: &Values,
        weights: Option<&Values>,
    ) -> Result<(Keys, Values), FilterError> {
        let array = self.array;
        if !keys.are_valid(range) {
            return Err(FilterError::Keys { array, range });
        }
        let (count, width) = (keys.len(range), self.width);
        let error = |source| FilterError::Values { array, source };
        values.check(count, width).map_err(error)?;
        if let Some(weights) = weights {
            weights.check(count, width).map_err(error)?;
        }
        let rounds = self.filters.precision != Precision::F32;
        if self.filters.kkt.is_none() && !rounds {
            return Ok((keys.clone(), values.clone()));
        }
        let mut sums = values.to_f32().to_vec();
        for (key, row) in keys.iter(range).zip(sums.chunks_exact_mut(width)) {
            let kept = self.kept.get(&key).into_iter().flatten();
            let row = row.iter_mut().zip(kept);
            row.for_each(|(sum, kept)| *sum += kept);
        }
        if let Some(at) = sums.iter().position(|number| !number.is_finite()) {
            return Err(error(ValuesError::NotFinite { at }));
        }
        let listed = |count: usize| count * (size_of::<Key>() + width * size_of::<f32>());
        let (sent_keys, sent) = match self.filters.kkt.zip(weights) {
            Some((kkt, weights)) => {
                let (sent, rows) = self.with_effect(kkt, keys.iter(range), sums, weights);
                let before = keys.bytes() + count * width * size_of::<f32>();
                self.traffic.count(array, Filter::Kkt, before, listed(sent.len()));
                (sent, rows)
            }
            None => (keys.iter(range).collect(), sums),
        };
        let values = self.round(&sent_keys, sent);
        let sent = sent_keys.len();
        if rounds {
            let after = sent * size_of::<Key>() + values.as_bytes().len();
            self.traffic.count(array, Filter::Precision, listed(sent), after);
        }
        let keys = match keys {
            // All keys of the range need no list.
            Keys::All if sent == count => Keys::All,
            _ => Keys::List(sent_keys.into()),
        };
        Ok((keys, values))
    }

    /// Everything that was kept back of `range`, exact, to be pushed in its turn: before a
    /// checkpoint, or at the end.
    pub fn flush(&mut self, range: KeyRange) -> (Keys, Values) {
        let kept = self.kept.extract_if(|key, _| range.contains(*key));
        let mut rows: Vec<(Key, Row)> = kept.collect();
        rows.sort_unstable_by_key(|&(key, _)| key);
        let keys: Vec<Key> = rows.iter().map(|&(key, _)| key).collect();
        let values: Vec<f32> = rows.into_iter().flat_map(|(_, row)| row).collect();
        (Keys::List(keys.into()), Values::from(values))
    }

    /// The rows that have an effect, of these sums. The others are kept back, as far as there is
    /// room, or dropped.
    fn with_effect(
        &mut self,
        kkt: Kkt,
        keys: impl Iterator<Item = Key>,
        sums: Vec<f32>,
        weights: &Values,
    ) -> (Vec<Key>, Vec<f32>) {
        let (width, weights) = (self.width, weights.to_f32());
        let (mut sent, mut rows) = (Vec::new(), Vec::new());
        let sums = sums.chunks_exact(width).zip(weights.chunks_exact(width));
        for (key, (row, weights)) in keys.zip(sums) {
            let is_kept = kkt.left_out == LeftOut::KeptBack;
            let has_room = self.kept.len() < self.filters.max_residual;
            let has_room = has_room || self.kept.contains_key(&key);
            if kkt.has_effect(row, weights) || (is_kept && !has_room) {
                sent.push(key);
                rows.extend_from_slice(row);
            } else if is_kept {
                self.kept.insert(key, Row::from_slice(row));
            }
        }
        (sent, rows)
    }

    /// The numbers as they are sent; what rounding leaves is kept back, if there is room.
    fn round(&mut self, keys: &[Key], sums: Vec<f32>) -> Values {
        let width = self.width;
        keys.iter().for_each(|key| drop(self.kept.remove(key)));
        if self.filters.precision == Precision::F32 {
            return Values::from(sums);
        }
        let rounded = self.filters.precision.round(&sums);
        let sent = rounded.to_f32();
        let mut left: Vec<(Key, Row)> = Vec::new();
        let rows = sums.chunks_exact(width).zip(sent.chunks_exact(width));
        for (&key, (row, sent)) in keys.iter().zip(rows) {
            let rest: Row = row.iter().zip(sent).map(|(sum, sent)| sum - sent).collect();
            if rest.iter().any(|&number| number != 0.0) {
                left.push((key, rest));
            }
        }
        if self.kept.len() + left.len() > self.filters.max_residual {
            return Values::from(sums);
        }
        self.kept.extend(left);
        rounded
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error(
        "{array}: the push's keys are not ascending within {range}: sort them and remove duplicates"
    )]
    Keys { array: ArrayId, range: KeyRange },
    #[error("{array}: {source}")]
    Values { array: ArrayId, source: ValuesError },
}
