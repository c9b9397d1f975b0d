//! Bytes that filters save.

use std::collections::BTreeMap;

use crate::ArrayId;

/// The filters, as they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Filter {
    /// Rows without effect left out.
    Kkt,
    /// Values as 16-bit floats.
    Precision,
    /// Digests in place of lists of keys.
    KeyLists,
    /// Compression with LZ4.
    Lz4,
}

impl Filter {
    /// Its name, as metrics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kkt => "kkt",
            Self::Precision => "precision",
            Self::KeyLists => "key-lists",
            Self::Lz4 => "lz4",
        }
    }
}

/// Bytes of keys and values before and after a filter. `after` may be the larger: a list of keys in
/// place of a whole range costs eight bytes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes {
    /// Given to the filter.
    pub before: u64,
    /// Left by it.
    pub after: u64,
}

impl Bytes {
    /// Bytes saved; negative if the filter made more of them.
    pub fn saved(self) -> i64 {
        let [before, after] = [self.before, self.after].map(u64::cast_signed);
        before.saturating_sub(after)
    }
}

/// The sums of all messages since the start, by array and filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic(BTreeMap<(ArrayId, Filter), Bytes>);

impl Traffic {
    /// Of one filter of one array.
    pub fn of(&self, array: ArrayId, filter: Filter) -> Bytes {
        self.0.get(&(array, filter)).copied().unwrap_or_default()
    }

    /// All that have seen a message.
    pub fn iter(&self) -> impl Iterator<Item = (ArrayId, Filter, Bytes)> + '_ {
        let counts = self.0.iter();
        counts.map(|(&(array, filter), &bytes)| (array, filter, bytes))
    }

    /// Adds what others have counted.
    pub fn add(&mut self, others: &Self) {
        for (array, filter, bytes) in others.iter() {
            self.add_bytes(array, filter, bytes);
        }
    }

    /// Adds what a filter was given, and what it left.
    pub fn count(&mut self, array: ArrayId, filter: Filter, before: usize, after: usize) {
        let (before, after) = (before as u64, after as u64);
        self.add_bytes(array, filter, Bytes { before, after });
    }

    fn add_bytes(&mut self, array: ArrayId, filter: Filter, more: Bytes) {
        let bytes = self.0.entry((array, filter)).or_default();
        bytes.before = bytes.before.saturating_add(more.before);
        bytes.after = bytes.after.saturating_add(more.after);
    }
}
