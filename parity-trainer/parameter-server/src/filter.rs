//! Filters: less to send (Li et al., OSDI 2014, sections 3.6 and 5.1). Each is on or off for each
//! array, and counts the bytes it is given and the bytes it leaves.
//!
//! - What changes numbers or leaves rows out is done once for each push, *before* the push is
//!   submitted to the [`Client`](crate::Client): [`PushFilter`]. Were it done again for a resend,
//!   that would carry other values than the first copy (PS-2).
//! - What the receiver undoes exactly is done for each message, between a state machine and its
//!   transport: [`Link`].

mod key_lists;
mod link;
mod lz4;
mod push;

pub use key_lists::Digest;
pub use link::{Link, LinkLimits, Packed, PackedKeys, PackedValues, UnpackError};
pub use push::{FilterError, Kkt, LeftOut, Precision, PushFilter};

use std::collections::BTreeMap;

use crate::ArrayId;

/// The filters of an array. By default, all are off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrayFilters {
    /// On pushes: leave out rows that would have no effect.
    pub kkt: Option<Kkt>,
    /// On pushes: the numbers' format. What rounding leaves is added to later pushes (error
    /// feedback, Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014).
    pub precision: Precision,
    /// Rows that may be kept back; rather than keep more, a push goes out with more rows, or exact.
    pub max_residual: usize,
    /// On all but snapshots: a list of keys is sent once, then its digest (OSDI 2014, section 4.2).
    pub key_lists: bool,
    /// On all messages but snapshots: LZ4.
    pub lz4: bool,
}

impl Default for ArrayFilters {
    fn default() -> Self {
        Self {
            kkt: None,
            precision: Precision::F32,
            max_residual: 1 << 24,
            key_lists: false,
            lz4: false,
        }
    }
}

/// The filters, as they are counted; by their names in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Filter {
    /// Rows without effect left out.
    Kkt,
    /// Values as 16-bit floats.
    Precision,
    /// Factors of gradients in place of their product.
    Factors,
    /// Digests in place of lists of keys.
    KeyLists,
    Lz4,
}

/// Bytes of keys and values before and after a filter. `after` may be the larger: a list of keys in
/// place of a whole range costs eight bytes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes {
    pub before: u64,
    pub after: u64,
}

/// The sums of all messages since the start, by array and filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traffic(BTreeMap<(ArrayId, Filter), Bytes>);

impl Traffic {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_the_names_that_metrics_show() {
        let all = [Filter::Kkt, Filter::Precision, Filter::Factors, Filter::KeyLists, Filter::Lz4];
        assert_eq!(all.map(<&str>::from), ["kkt", "precision", "factors", "key-lists", "lz4"]);
    }
}
