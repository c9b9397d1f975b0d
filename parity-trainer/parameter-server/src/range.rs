//! Key ranges.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Key;

/// The keys from `start` up to, but not with, `end`. Empty if they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Key, Key)", into = "(Key, Key)")]
pub struct KeyRange {
    /// First key of the range.
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

    /// Number of keys.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns true if there is no key in it.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Returns true if `key` is in it.
    pub const fn contains(self, key: Key) -> bool {
        self.start <= key && key < self.end
    }

    /// Returns true if all of `other` is in it.
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

    /// This range in `parts` pieces whose lengths differ by at most 1; in fewer if it has fewer
    /// keys.
    pub fn cut(self, parts: u64) -> impl Iterator<Item = Self> {
        let parts = parts.min(self.len());
        let border = move |part: u64| {
            let offset = u128::from(self.len()) * u128::from(part) / u128::from(parts.max(1));
            self.start + u64::try_from(offset).unwrap_or(self.len())
        };
        (0..parts).map(move |part| Self::new(border(part), border(part + 1)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_without_its_end() {
        assert_eq!(KeyRange::new(3, 7).to_string(), "[3, 7)");
    }
}
