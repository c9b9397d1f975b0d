//! Contents of messages: keys and values in shared buffers.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use serde::{Deserialize, Serialize};

use crate::{Key, KeyRange, Pool};
pub use factors::Factors;

mod factors;

/// A window of a shared, immutable vector.
///
/// A message is sent again, forwarded along a chain and cut at range borders without copying its
/// numbers. A transport writes [`Shared::as_bytes`] as one element of a vectored write, and reads
/// into a `Vec<T>` through `bytemuck::cast_slice_mut`, so that the numbers are aligned. The bytes
/// are in this machine's order: little-endian on every target we build for.
#[derive(Clone)]
pub struct Shared<T> {
    buffer: Arc<Vec<T>>,
    window: Range<usize>,
    /// All numbers of the window are known to be moderate.
    moderate: bool,
}

impl<T> Shared<T> {
    /// A window of a vector, with bounds clamped to it. A transport that keeps an `Arc` of its own
    /// can tell when the vector is free again, and read the next message into it.
    #[must_use]
    pub fn window(buffer: Arc<Vec<T>>, range: Range<usize>) -> Self {
        let end = range.end.min(buffer.len());
        Self { window: range.start.min(end)..end, buffer, moderate: false }
    }

    /// Elements of `range` of this window, sharing the vector; bounds are clamped to the window.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.window.len());
        let start = range.start.min(end);
        Self {
            buffer: Arc::clone(&self.buffer),
            window: self.window.start + start..self.window.start + end,
            moderate: self.moderate,
        }
    }

    /// Elements of the window, if the vector is not shared.
    pub fn get_mut(&mut self) -> Option<&mut [T]> {
        Arc::get_mut(&mut self.buffer)?.get_mut(self.window.clone())
    }

    /// Keeps the vector in a pool, to be used again once all windows of it are gone.
    pub fn keep_in(&self, pool: &mut Pool<T>)
    where
        T: Copy + Default,
    {
        pool.keep(&self.buffer);
    }

    fn with_moderate(self, moderate: bool) -> Self {
        Self { moderate, ..self }
    }
}

impl Shared<f32> {
    /// Records what [`are_moderate`] has said of all numbers. A transport checks them while they
    /// are in the processor's cache, and the store need not go through them again.
    #[must_use]
    pub fn marked_moderate(self, moderate: bool) -> Self {
        debug_assert!(!moderate || are_moderate(&self), "not moderate");
        self.with_moderate(moderate)
    }

    /// Returns true if no number is above [`MODERATE`] in magnitude.
    pub fn is_moderate(&self) -> bool {
        self.moderate || are_moderate(self)
    }
}

impl<T: Clone> Shared<T> {
    /// The same elements alone in a vector: to keep a window keeps all of its vector.
    pub(crate) fn compact(&self) -> Self {
        if self.window.len() == self.buffer.len() {
            self.clone()
        } else {
            Self::from(self.to_vec())
        }
    }
}

impl<T: bytemuck::NoUninit> Shared<T> {
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(elements: Vec<T>) -> Self {
        let all = 0..elements.len();
        Self::window(Arc::new(elements), all)
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.buffer.get(self.window.clone()).unwrap_or_default()
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// The rows that a message names. The list is not serialised: a transport sends it as it lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Keys {
    /// Every key of the message's range, in order.
    All,
    /// These keys, ascending, each once, all in the message's range.
    List(#[serde(skip)] Shared<Key>),
}

impl Keys {
    /// No key: a push of none only advances the clock.
    pub fn none() -> Self {
        Self::List(Shared::default())
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::All => 0,
            Self::List(keys) => size_of_val::<[Key]>(keys),
        }
    }

    /// Number of keys, for a message about `range`.
    pub fn len(&self, range: KeyRange) -> usize {
        match self {
            Self::All => usize::try_from(range.len()).unwrap_or(usize::MAX),
            Self::List(keys) => keys.len(),
        }
    }

    /// Returns true if the keys are ascending, each once, and in `range`.
    pub fn are_valid(&self, range: KeyRange) -> bool {
        let Self::List(keys) = self else { return true };
        let is_in = |key: Option<&Key>| key.is_none_or(|&key| range.contains(key));
        keys.is_sorted_by(|a, b| a < b) && is_in(keys.first()) && is_in(keys.last())
    }

    /// The keys that are also in `part`, a part of `range`, and their places among all.
    pub fn cut(&self, range: KeyRange, part: KeyRange) -> (Self, Range<usize>) {
        let place = |key: Key| match self {
            Self::All => usize::try_from(key.saturating_sub(range.start)).unwrap_or(usize::MAX),
            Self::List(keys) => keys.partition_point(|&k| k < key),
        };
        let places = place(part.start)..place(part.end);
        match self {
            Self::All => (Self::All, places),
            Self::List(keys) => (Self::List(keys.slice(places.clone())), places),
        }
    }

    /// The rows that are also in `part`, a part of `range`.
    pub(crate) fn cut_rows(
        &self,
        values: &Values,
        range: KeyRange,
        part: KeyRange,
        width: usize,
    ) -> (Self, Values) {
        let (keys, places) = self.cut(range, part);
        let numbers = places.start.saturating_mul(width)..places.end.saturating_mul(width);
        (keys, values.slice(numbers))
    }

    /// The keys, for a message about `range`.
    pub fn iter(&self, range: KeyRange) -> impl Iterator<Item = Key> + '_ {
        let (all, list) = match self {
            Self::All => (range.start..range.end, &[][..]),
            Self::List(keys) => (0..0, &keys[..]),
        };
        all.chain(list.iter().copied())
    }
}

/// The rows' values, one row after another. Serialised as their format alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Values {
    /// 32-bit floats. What servers store and answer.
    F32(#[serde(skip)] Shared<f32>),
    /// 16-bit floats with the exponent of a 32-bit one: its upper half, as bits.
    Bf16(#[serde(skip)] Shared<u16>),
    /// IEEE 754 16-bit floats, as bits: three more bits of precision, nothing above 65,504.
    F16(#[serde(skip)] Shared<u16>),
    /// 32-bit floats that are a product.
    Factors(Factors),
}

impl Values {
    pub fn none() -> Self {
        Self::F32(Shared::default())
    }

    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) | Self::F16(values) => values.len(),
            Self::Factors(factors) => factors.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes to send, with no copy; see [`Shared`].
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => values.as_bytes(),
            Self::Bf16(values) | Self::F16(values) => values.as_bytes(),
            Self::Factors(factors) => factors.as_bytes(),
        }
    }

    /// The numbers in `range`, sharing the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(values.slice(range)),
            Self::Bf16(values) => Self::Bf16(values.slice(range)),
            Self::F16(values) => Self::F16(values.slice(range)),
            Self::Factors(factors) => Self::Factors(factors.slice(range)),
        }
    }

    /// The numbers as 32-bit floats: shared if they are, widened if not.
    pub fn to_f32(&self) -> Shared<f32> {
        match self {
            Self::F32(values) => values.clone(),
            Self::Bf16(values) => {
                let wide = |&bits: &u16| f32::from_bits(u32::from(bits) << 16);
                let wide: Vec<f32> = values.iter().map(wide).collect();
                Shared::from(wide).with_moderate(values.moderate)
            }
            Self::F16(values) => {
                let wide = values.reinterpret_cast::<f16>().to_f32_vec();
                Shared::from(wide).with_moderate(values.moderate)
            }
            Self::Factors(factors) if factors.fit() => {
                Shared::from(factors.product()).with_moderate(factors.is_moderate())
            }
            Self::Factors(_) => Shared::default(),
        }
    }

    /// Checks that there are `rows` rows of `width` numbers, all finite (PS-7). Returns true if
    /// they are moderate.
    pub fn check(&self, rows: usize, width: usize) -> Result<bool, ValuesError> {
        let (expected, found) = (rows.saturating_mul(width), self.len());
        if found != expected {
            return Err(ValuesError::Length { expected, found });
        }
        if let Self::Factors(factors) = self
            && !factors.fit()
        {
            return Err(ValuesError::Factors);
        }
        if self.is_moderate() {
            return Ok(true);
        }
        let bad = match self {
            Self::F32(values) => values.iter().position(|value| !value.is_finite()),
            Self::Bf16(values) => values.iter().position(|&bits| bits & 0x7f80 == 0x7f80),
            Self::F16(values) => values.iter().position(|&bits| bits & 0x7c00 == 0x7c00),
            Self::Factors(factors) => factors.first_not_finite(),
        };
        bad.map_or(Ok(false), |at| Err(ValuesError::NotFinite { at }))
    }

    /// As [`check`](Self::check), and remembers that the numbers are moderate if they are.
    pub fn checked(self, rows: usize, width: usize) -> Result<Self, ValuesError> {
        let moderate = self.check(rows, width)?;
        Ok(match self {
            Self::F32(values) => Self::F32(values.with_moderate(moderate)),
            Self::Bf16(values) => Self::Bf16(values.with_moderate(moderate)),
            Self::F16(values) => Self::F16(values.with_moderate(moderate)),
            Self::Factors(factors) => Self::Factors(factors),
        })
    }

    fn is_moderate(&self) -> bool {
        match self {
            Self::F32(values) => values.is_moderate(),
            Self::Bf16(values) => {
                values.moderate || all(values, |&bits| bits & 0x7fff <= MODERATE_BF16)
            }
            // The largest finite one is 65504.
            Self::F16(values) => values.moderate || all(values, |&bits| bits & 0x7c00 != 0x7c00),
            Self::Factors(factors) => factors.is_moderate(),
        }
    }
}

/// Magnitude up to which numbers are moderate, 2^50: far above those of a training that goes well,
/// and far enough below the largest `f32` that a usual rule's update of moderate numbers is finite.
pub const MODERATE: f32 = 1_125_899_906_842_624.0;

/// [`MODERATE`] in bfloat16.
const MODERATE_BF16: u16 = (MODERATE.to_bits() >> 16) as u16;

/// Returns true if no number is above [`MODERATE`] in magnitude, nor NaN.
pub fn are_moderate(numbers: &[f32]) -> bool {
    all(numbers, |number| number.abs() <= MODERATE)
}

pub(crate) fn are_finite(numbers: &[f32]) -> bool {
    all(numbers, |number| number.is_finite())
}

/// Returns true if all elements are good. They are as a rule: whole blocks are checked without a
/// branch, which the compiler turns into vector instructions.
fn all<T>(elements: &[T], is_good: impl Fn(&T) -> bool) -> bool {
    const BLOCK: usize = 1024;
    let is_good = |good, element| good & is_good(element);
    let mut blocks = elements.chunks(BLOCK);
    blocks.all(|block| block.iter().fold(true, is_good))
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ValuesError {
    #[error(
        "{found} numbers where the keys and the array's width make {expected}: send one row for \
            each key"
    )]
    Length { expected: usize, found: usize },
    #[error("number {at} is not finite: skip the step whose gradient overflowed")]
    NotFinite { at: usize },
    #[error("the factors are not those of the numbers they stand for: send both, of one rank")]
    Factors,
}
