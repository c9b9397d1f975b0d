//! Key ranges.

use std::fmt;

use crate::Key;

/// The keys from `start` up to, but not with, `end`. Empty if they are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Key,
    /// The key after the last.
    pub end: Key,
}

impl KeyRange {
    /// The keys `start..end`; empty at `start` if `end` is smaller.
    pub const fn new(start: Key, end: Key) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// How many keys.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether there is no key in it.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether `key` is in it.
    pub const fn contains(self, key: Key) -> bool {
        self.start <= key && key < self.end
    }

    /// Whether all of `other` is in it.
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The keys in both; `None` if there is none.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let both = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (both.start < both.end).then_some(both)
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}
