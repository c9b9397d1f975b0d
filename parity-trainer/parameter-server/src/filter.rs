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
mod traffic;

pub use key_lists::Digest;
pub use link::{Link, LinkLimits, Packed, PackedKeys, PackedValues, UnpackError};
pub use push::{FilterError, Kkt, LeftOut, Precision, PushFilter};
pub use traffic::{Bytes, Filter, Traffic};

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
    /// On all messages but snapshots: a list of keys is sent once, then its digest (OSDI 2014,
    /// section 4.2).
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
