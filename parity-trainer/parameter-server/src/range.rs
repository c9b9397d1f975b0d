//! Key ranges, and sets of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Key;

/// The keys from `start` up to, but not with, `end`. Empty if they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Key, Key)", into = "(Key, Key)")]
pub struct KeyRange {
    pub start: Key,
    /// The key after the last.
    pub end: Key,
}

impl KeyRange {
    /// The keys `start..end`; empty at `start` if `end` is smaller.
    pub const fn new(start: Key, end: Key) -> Self {
        let end = if end < start { start } else { end };
        Self { start, end }
    }

    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub const fn contains(self, key: Key) -> bool {
        self.start <= key && key < self.end
    }

    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The keys in both; `None` if there is none.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let both = Self::new(self.start.max(other.start), self.end.min(other.end));
        (!both.is_empty()).then_some(both)
    }

    /// The parts of this range below, in and above `middle`; any of them may be empty.
    pub(crate) fn around(self, middle: Self) -> [Self; 3] {
        let (start, end) = (self.start.max(middle.start), self.end.min(middle.end));
        [
            Self::new(self.start, self.end.min(middle.start)),
            Self::new(start, end),
            Self::new(self.start.max(middle.end), self.end),
        ]
    }

    /// The keys from the first of both to the last of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// This range in `parts` pieces whose lengths differ by at most 1; fewer if it has fewer keys.
    pub fn cut(self, parts: u64) -> impl Iterator<Item = Self> {
        let parts = parts.min(self.len());
        let border = move |part: u64| {
            let offset = u128::from(self.len()) * u128::from(part) / u128::from(parts.max(1));
            self.start + u64::try_from(offset).unwrap_or(self.len())
        };
        (0..parts).map(move |part| Self::new(border(part), border(part + 1)))
    }

    /// The same, with each border moved to the nearest of `places` that is within a third of a
    /// piece.
    pub fn cut_near(self, parts: u64, places: &[Key]) -> Vec<Self> {
        let near = self.len() / parts.max(1) / 3;
        let mut start = self.start;
        let pieces = self.cut(parts).filter_map(|piece| {
            let inner = |place: &&Key| **place > start && **place < self.end;
            let nearest = places.iter().filter(inner).min_by_key(|at| at.abs_diff(piece.end));
            let nearest = nearest.filter(|place| place.abs_diff(piece.end) <= near);
            let end = nearest.filter(|_| piece.end < self.end).copied().unwrap_or(piece.end);
            let piece = Self::new(start, end);
            start = end.max(start);
            Some(piece).filter(|piece| !piece.is_empty())
        });
        pieces.collect()
    }
}

impl TryFrom<(Key, Key)> for KeyRange {
    type Error = &'static str;

    fn try_from((start, end): (Key, Key)) -> Result<Self, Self::Error> {
        if start > end {
            return Err("a key range that ends before it starts");
        }
        Ok(Self { start, end })
    }
}

impl From<KeyRange> for (Key, Key) {
    fn from(range: KeyRange) -> Self {
        (range.start, range.end)
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// Keys, as ranges that do not touch. Above a number of ranges, the gap before the next one is
/// filled: the set may hold more keys than were inserted, never fewer.
#[derive(Debug, Clone)]
pub(crate) struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<Key, Key>,
    most: usize,
}

impl RangeSet {
    pub(crate) const fn new(most: usize) -> Self {
        let ranges = BTreeMap::new();
        Self { ranges, most }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn len(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    pub(crate) fn first(&self) -> Option<KeyRange> {
        let (&start, &end) = self.ranges.first_key_value()?;
        Some(KeyRange::new(start, end))
    }

    pub(crate) fn insert(&mut self, range: KeyRange) {
        if range.is_empty() {
            return;
        }
        let KeyRange { mut start, mut end } = range;
        if let Some((&s, &e)) = self.ranges.range(..=start).next_back()
            && e >= start
        {
            (start, end) = (s, e.max(end));
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
        if self.ranges.len() > self.most {
            self.fill_gap_after(start, end);
        }
    }

    /// Joins the range to the next one; the last range is joined to the one before.
    fn fill_gap_after(&mut self, start: Key, end: Key) {
        let next = self.ranges.range(end..).next().map(|(&s, &e)| (s, e));
        if let Some((next, next_end)) = next {
            self.ranges.remove(&next);
            self.ranges.insert(start, next_end);
        } else {
            self.ranges.remove(&start);
            if let Some((_, last_end)) = self.ranges.iter_mut().next_back() {
                *last_end = end;
            }
        }
    }

    /// Removes the keys of the first range that are below `end`.
    pub(crate) fn remove_first_up_to(&mut self, end: Key) {
        if let Some((start, old_end)) = self.ranges.pop_first() {
            let rest = KeyRange::new(end.max(start), old_end);
            if !rest.is_empty() {
                self.ranges.insert(rest.start, rest.end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_shown_without_its_end() {
        assert_eq!(KeyRange::new(3, 7).to_string(), "[3, 7)");
    }

    #[test]
    fn a_place_within_a_third_of_a_piece_is_a_border() {
        let ends = |places: &[Key]| {
            let pieces = KeyRange::new(0, 100).cut_near(4, places).into_iter();
            Vec::from_iter(pieces.map(|piece| piece.end))
        };
        assert_eq!(ends(&[]), [25, 50, 75, 100]);
        assert_eq!(ends(&[20, 52, 95]), [20, 52, 75, 100]);
        assert_eq!(ends(&[16, 33, 34, 42, 83]), [33, 42, 83, 100]);
    }

    proptest! {
        #[test]
        fn pieces_are_all_keys_and_end_at_places_that_are_near(
            len in 0u64..200,
            parts in 1u64..12,
            places in prop::collection::btree_set(0u64..220, 0..6),
        ) {
            let range = KeyRange::new(10, 10 + len);
            let places = Vec::from_iter(places);
            let pieces = range.cut_near(parts, &places);
            let mut end = range.start;
            for piece in &pieces {
                prop_assert!(piece.start == end && !piece.is_empty());
                end = piece.end;
            }
            prop_assert!(end == range.end && pieces.len() as u64 <= parts);
            let near = len / parts / 3;
            let even = Vec::from_iter(range.cut(parts).map(|piece| piece.end));
            for piece in &pieces {
                prop_assert!(even.contains(&piece.end) || places.contains(&piece.end));
                prop_assert!(even.iter().any(|even| even.abs_diff(piece.end) <= near));
            }
            if places.is_empty() {
                prop_assert_eq!(pieces, Vec::from_iter(range.cut(parts)));
            }
        }

        #[test]
        fn holds_what_was_inserted(
            ranges in prop::collection::vec((0u64..60, 0u64..6), 0..40),
            most in 1usize..20,
            up_to in 0u64..60,
        ) {
            let mut set = RangeSet::new(most);
            let mut keys = BTreeSet::new();
            for (start, len) in ranges {
                set.insert(KeyRange::new(start, start + len));
                keys.extend(start..start + len);
                let held: BTreeSet<Key> = set.ranges.iter().flat_map(|(&s, &e)| s..e).collect();
                prop_assert!(held.is_superset(&keys) && set.ranges.len() <= most);
                prop_assert!(most < 20 || set.ranges.len() == most || held == keys);
                prop_assert_eq!(set.len(), held.len() as u64);
            }
            let first = set.first();
            let before = set.len();
            set.remove_first_up_to(up_to);
            let removed = first
                .and_then(|first| first.intersect(KeyRange::new(0, up_to)))
                .map_or(0, KeyRange::len);
            prop_assert_eq!(set.len(), before - removed);
        }
    }
}
