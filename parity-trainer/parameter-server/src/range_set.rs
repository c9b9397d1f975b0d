//! A set of keys as ranges.

use std::collections::BTreeMap;

use crate::{Key, KeyRange};

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

    /// Number of keys.
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

    proptest! {
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
