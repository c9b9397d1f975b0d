//! Filters that change what is pushed, with error feedback.
//!
//! Values that a push leaves out, because their row was not among the largest or they were rounded,
//! are kept and added to the next push of the row: the sum of sent and kept values is the sum of
//! the given ones (up to the rounding of 32-bit additions). This serves rules that add up what they
//! are given (SGD, momentum); a rule that divides by the size of gradients (Adam, AdaGrad, FTRL)
//! sees other sizes and still converges, less predictably. What is kept is lost with the worker, as
//! is the gradient that it was computing. The same holds of what KKT keeps back.

use super::kkt::Kept;
use super::row_list::RowList;
use super::{ArrayFilters, Filter, Kkt, LeftOut, Precision, Traffic};
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
    /// Rows that had no effect so far.
    kept: Kept,
    traffic: Traffic,
}

/// A push as KKT divides it.
#[derive(Default)]
struct Judged {
    given: RowList,
    /// To be kept back, with what was kept of the same rows before.
    kept: RowList,
    /// The values kept back of these rows are given with them.
    released: Vec<Key>,
}

impl PushFilter {
    /// For an array with rows of `width` numbers.
    pub fn new(array: ArrayId, width: usize, filters: ArrayFilters) -> Self {
        Self {
            array,
            width: width.max(1),
            filters,
            residual: RowList::default(),
            kept: Kept::default(),
            traffic: Traffic::default(),
        }
    }

    /// Bytes before and after.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Number of rows that are kept back.
    pub fn kept_back(&self) -> usize {
        self.residual.len() + self.kept.len()
    }

    /// Returns the rows to push to `range` in place of these. `weights`, only for KKT, are the
    /// rows' present weights as they were pulled; without them nothing is left out.
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
            values
                .check(keys.len(range), width)
                .map_err(|source| FilterError::Values { array, source })
        };
        check(values)?;
        weights.map_or(Ok(()), check)?;
        if !self.filters.is_lossy() {
            return Ok((keys.clone(), values.clone()));
        }
        let numbers = values.to_f32();
        let rows = keys.iter(range).zip(numbers.chunks_exact(width));
        let judged = match self.filters.kkt.zip(weights) {
            Some((kkt, weights)) => {
                let weights = weights.to_f32();
                let rows = rows.zip(weights.chunks_exact(width));
                let judged =
                    self.judge(kkt, rows.map(|((key, row), weights)| (key, row, weights)))?;
                let before = keys.bytes() + size_of_val::<[f32]>(&numbers);
                self.traffic
                    .count(array, Filter::Kkt, before, judged.given.bytes());
                judged
            }
            None => {
                let mut given = RowList::default();
                rows.for_each(|(key, row)| given.push(key, row.iter().copied()));
                Judged {
                    given,
                    ..Judged::default()
                }
            }
        };
        let Judged {
            given,
            kept,
            released,
        } = judged;
        let (sent, values) = self.feed_back(range, given, self.kept.len() + kept.len())?;
        self.kept.replace(&kept, &released, width);
        // All keys of the range need no list.
        let is_all = *keys == Keys::All && sent.len() == keys.len(range);
        Ok((if is_all { Keys::All } else { Keys::List(sent) }, values))
    }

    /// Everything that was kept back of `range`, exact, to be pushed in its turn: before a
    /// checkpoint, or at the end.
    pub fn flush(&mut self, range: KeyRange) -> (Keys, Values) {
        let rows = self.residual.replace(range, RowList::default(), self.width);
        let (rows, _) = rows.merge(self.kept.take(range).iter(self.width), self.width);
        (Keys::List(rows.keys.into()), Values::from(rows.values))
    }

    /// Splits rows into those that have an effect, with the values kept back of them,
    /// and the others.
    fn judge<'a>(
        &self,
        kkt: Kkt,
        rows: impl Iterator<Item = (Key, &'a [f32], &'a [f32])>,
    ) -> Result<Judged, FilterError> {
        let mut judged = Judged::default();
        let room = self.filters.max_residual.saturating_sub(self.kept_back());
        let mut sum = Vec::with_capacity(self.width);
        for (key, row, weights) in rows {
            let before = self.kept.get(key);
            sum.clear();
            sum.extend_from_slice(row);
            sum.iter_mut()
                .zip(before.unwrap_or_default())
                .for_each(|(sum, kept)| *sum += kept);
            if let Some(at) = sum.iter().position(|number| !number.is_finite()) {
                let source = ValuesError::NotFinite {
                    at: judged.given.values.len() + at,
                };
                return Err(FilterError::Values {
                    array: self.array,
                    source,
                });
            }
            let is_kept = kkt.left_out == LeftOut::KeptBack;
            let has_room = before.is_some() || judged.kept.len() < room;
            if kkt.has_effect(&sum, weights) || (is_kept && !has_room) {
                judged.given.push(key, sum.iter().copied());
                judged.released.extend(before.is_some().then_some(key));
            } else if is_kept {
                judged.kept.push(key, sum.iter().copied());
            }
        }
        Ok(judged)
    }

    /// The keys and numbers to send; the rest is kept, where `others` rows are kept beside.
    fn feed_back(
        &mut self,
        range: KeyRange,
        given: RowList,
        others: usize,
    ) -> Result<(Shared<Key>, Values), FilterError> {
        let (array, width) = (self.array, self.width);
        if !self.filters.keeps_back() {
            return Ok((given.keys.into(), given.values.into()));
        }
        let room = self
            .filters
            .max_residual
            .saturating_sub(self.residual.outside(range) + others);
        let (all, is_given) = given.merge(self.residual.within(range, width), width);
        if let Some(at) = all.values.iter().position(|number| !number.is_finite()) {
            return Err(FilterError::Values {
                array,
                source: ValuesError::NotFinite { at },
            });
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
            self.traffic
                .count(array, Filter::Top, all.bytes(), sent.bytes());
        }
        let mut values = self.filters.precision.round(&sent.values);
        let mut rest = remainder(&all, &chosen, &values.to_f32(), width);
        if rest.len() > room {
            values = Values::from(sent.values.clone());
            rest = remainder(&all, &chosen, &sent.values, width);
        }
        if self.filters.precision != Precision::F32 {
            let after = sent.bytes() - size_of_val(&sent.values[..]) + values.as_bytes().len();
            self.traffic
                .count(array, Filter::Precision, sent.bytes(), after);
        }
        self.residual.replace(range, rest, width);
        Ok((sent.keys.into(), values))
    }
}

/// Chooses the rows to send: those with the largest sums of squares, `wanted` of them, or so many
/// more that at most `room` are left; never one of zeros.
fn largest(rows: &RowList, width: usize, wanted: usize, room: usize) -> Vec<bool> {
    let square = |row: &[f32]| {
        row.iter()
            .map(|&number| f64::from(number).powi(2))
            .sum::<f64>()
    };
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

/// Returns the remainder of `rows` when the chosen ones have been sent as `sent`: no row of zeros.
fn remainder(rows: &RowList, chosen: &[bool], sent: &[f32], width: usize) -> RowList {
    let mut rest = RowList::default();
    let mut sent = sent.chunks_exact(width);
    for ((key, row), &chosen) in rows.iter(width).zip(chosen) {
        let sent = if chosen {
            sent.next().unwrap_or_default()
        } else {
            &[]
        };
        let left = row
            .iter()
            .zip(sent.iter().copied().chain(std::iter::repeat(0.0)))
            .map(|(a, b)| a - b);
        if left.clone().any(|number| number != 0.0) {
            rest.push(key, left);
        }
    }
    rest
}

/// Errors of a push that is to be filtered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Keys out of order, or out of the range.
    #[error(
        "{array}: the push's keys are not ascending within {range}: sort them and remove duplicates"
    )]
    Keys {
        /// Array of the push.
        array: ArrayId,
        /// Range of the push.
        range: KeyRange,
    },
    /// Too few or too many numbers, or numbers that are not finite, perhaps only with what
    /// was kept back.
    #[error("{array}: {source}")]
    Values {
        /// Array of the push.
        array: ArrayId,
        /// Error in its values.
        source: ValuesError,
    },
}
