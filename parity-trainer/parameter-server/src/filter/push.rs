//! Filters that change what is pushed, with error feedback.
//!
//! What a push does not say, because its row was not among the largest or its numbers were rounded, is kept and added to
//! the next push of the row: the sum of what was sent and of what is kept is the sum of what was given (up to the
//! rounding of 32-bit additions). This serves rules that add up what they are given (SGD, momentum); a rule that divides
//! by the size of gradients (Adam, AdaGrad, FTRL) sees other sizes and still converges, less predictably. What is kept
//! is lost with the worker, as is the gradient that it was computing.

use super::row_list::RowList;
use super::{ArrayFilters, Filter, Kkt, Precision, Traffic};
use crate::{ArrayId, Key, KeyRange, Keys, Shared, Values, ValuesError};

/// The filters of one worker's pushes to one array, in the order KKT, top, precision.
///
/// To be given each push once, before it is submitted; see the [filters](crate::ArrayFilters).
#[derive(Debug, Clone)]
pub struct PushFilter {
    array: ArrayId,
    width: usize,
    filters: ArrayFilters,
    /// Rows that are still to be sent; none is all zeros.
    residual: RowList,
    traffic: Traffic,
}

impl PushFilter {
    /// For an array with rows of `width` numbers.
    pub fn new(array: ArrayId, width: usize, filters: ArrayFilters) -> Self {
        Self {
            array,
            width: width.max(1),
            filters,
            residual: RowList::default(),
            traffic: Traffic::default(),
        }
    }

    /// Bytes before and after.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// How many rows are kept back.
    pub fn kept_back(&self) -> usize {
        self.residual.len()
    }

    /// What to push to `range` in the place of these rows. `weights`, only for KKT, are the rows' present weights as
    /// they were pulled; without them nothing is left out.
    ///
    /// On an error nothing is kept of the push: it can be corrected and filtered again.
    pub fn filter(
        &mut self,
        range: KeyRange,
        keys: &Keys,
        values: &Values,
        weights: Option<&Values>,
    ) -> Result<(Keys, Values), FilterError> {
        let (array, width) = (self.array, self.width);
        if !keys.are_valid(range) {
            return Err(FilterError::Keys { array, range });
        }
        let check = |values: &Values| {
            values.check(keys.len(range), width).map_err(|source| FilterError::Values { array, source })
        };
        check(values)?;
        weights.map_or(Ok(()), check)?;
        if !self.filters.is_lossy() {
            return Ok((keys.clone(), values.clone()));
        }
        let numbers = values.to_f32();
        let rows = keys.iter(range).zip(numbers.chunks_exact(width));
        let mut given = RowList::default();
        match self.filters.kkt.zip(weights) {
            Some((kkt, weights)) => {
                let weights = weights.to_f32();
                for ((key, row), weights) in rows.zip(weights.chunks_exact(width)) {
                    if kkt.has_effect(row, weights) {
                        given.push(key, row.iter().copied());
                    }
                }
                let before = keys.bytes() + size_of_val::<[f32]>(&numbers);
                self.traffic.count(array, Filter::Kkt, before, given.bytes());
            }
            None => rows.for_each(|(key, row)| given.push(key, row.iter().copied())),
        }
        let (sent, values) = self.feed_back(range, given)?;
        // All keys of the range need no list.
        let is_all = *keys == Keys::All && sent.len() == keys.len(range);
        Ok((if is_all { Keys::All } else { Keys::List(sent) }, values))
    }

    /// Everything that was kept back of `range`, exact, to be pushed in its turn: before a checkpoint, or at the end.
    pub fn flush(&mut self, range: KeyRange) -> (Keys, Values) {
        let rows = self.residual.replace(range, RowList::default(), self.width);
        (Keys::List(rows.keys.into()), Values::from(rows.values))
    }

    /// The keys and numbers to send; the rest is kept.
    fn feed_back(&mut self, range: KeyRange, given: RowList) -> Result<(Shared<Key>, Values), FilterError> {
        let (array, width) = (self.array, self.width);
        if !self.filters.keeps_back() {
            return Ok((given.keys.into(), given.values.into()));
        }
        let room = self.filters.max_residual.saturating_sub(self.residual.outside(range));
        let (all, is_given) = given.merge(self.residual.within(range, width), width);
        if let Some(at) = all.values.iter().position(|number| !number.is_finite()) {
            return Err(FilterError::Values { array, source: ValuesError::NotFinite { at } });
        }
        let chosen = match self.filters.top {
            Some(share) => {
                let wanted = (share.clamp(0.0, 1.0) * given.len() as f64).ceil() as usize;
                largest(&all, width, wanted, room)
            }
            None => is_given,
        };
        let sent = all.select(&chosen, width);
        if self.filters.top.is_some() {
            self.traffic.count(array, Filter::Top, all.bytes(), sent.bytes());
        }
        let mut values = self.filters.precision.round(&sent.values);
        let mut rest = remainder(&all, &chosen, &values.to_f32(), width);
        if rest.len() > room {
            values = Values::from(sent.values.clone());
            rest = remainder(&all, &chosen, &sent.values, width);
        }
        if self.filters.precision != Precision::F32 {
            let after = sent.bytes() - size_of_val(&sent.values[..]) + values.as_bytes().len();
            self.traffic.count(array, Filter::Precision, sent.bytes(), after);
        }
        self.residual.replace(range, rest, width);
        Ok((sent.keys.into(), values))
    }
}

impl Kkt {
    fn has_effect(self, gradients: &[f32], weights: &[f32]) -> bool {
        weights.iter().any(|&weight| weight != 0.0)
            || gradients.iter().any(|gradient| (self.scale * gradient).abs() > self.threshold)
    }
}

/// Which rows to send: those with the largest sums of squares, `wanted` of them, or so many more that at most `room` are
/// left; never one of zeros.
fn largest(rows: &RowList, width: usize, wanted: usize, room: usize) -> Vec<bool> {
    let square = |row: &[f32]| row.iter().map(|&number| f64::from(number).powi(2)).sum::<f64>();
    let mut order: Vec<(f64, usize)> = rows
        .iter(width)
        .enumerate()
        .map(|(place, (_, row))| (square(row), place))
        .filter(|&(square, _)| square > 0.0)
        .collect();
    let count = wanted.max(order.len().saturating_sub(room));
    if count < order.len() {
        order.select_nth_unstable_by(count, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        order.truncate(count);
    }
    let mut chosen = vec![false; rows.len()];
    for (_, place) in order {
        if let Some(chosen) = chosen.get_mut(place) {
            *chosen = true;
        }
    }
    chosen
}

/// What is left of `rows` when the chosen ones have been sent as `sent`: no row of zeros.
fn remainder(rows: &RowList, chosen: &[bool], sent: &[f32], width: usize) -> RowList {
    let mut rest = RowList::default();
    let mut sent = sent.chunks_exact(width);
    for ((key, row), &chosen) in rows.iter(width).zip(chosen) {
        let sent = if chosen { sent.next().unwrap_or_default() } else { &[] };
        let left = row.iter().zip(sent.iter().copied().chain(std::iter::repeat(0.0))).map(|(a, b)| a - b);
        if left.clone().any(|number| number != 0.0) {
            rest.push(key, left);
        }
    }
    rest
}

/// What can be wrong with a push that is to be filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Keys out of order, or out of the range.
    #[error("{array}: the push's keys are not ascending within {range}: sort them and remove duplicates")]
    Keys {
        /// The array.
        array: ArrayId,
        /// The push's range.
        range: KeyRange,
    },
    /// Too few or too many numbers, or numbers that are not finite, perhaps only with what was kept back.
    #[error("{array}: {source}")]
    Values {
        /// The array.
        array: ArrayId,
        /// What is wrong.
        source: ValuesError,
    },
}
