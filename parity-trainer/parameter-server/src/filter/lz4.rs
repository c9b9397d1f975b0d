//! LZ4 of numbers.
//!
//! The bytes are put in order of significance first: the signs and exponents of neighbouring
//! numbers are alike, and LZ4 finds only whole bytes that repeat. Keys are replaced by their
//! differences. LZ4's speed is nearer to the network's than that of what compresses better.

use bytemuck::Pod;

use super::UnpackError;
use crate::{Key, Shared};

/// Below this many bytes it is not tried.
const LEAST: usize = 64;

/// LZ4 makes at most 255 bytes of one; a packet that says more gets no memory.
const MOST_FROM_ONE: usize = 256;

/// The compressed numbers, if they are shorter than the numbers.
pub(super) fn compress<T: Pod>(numbers: &[T]) -> Option<Shared<u8>> {
    let bytes: &[u8] = bytemuck::cast_slice(numbers);
    if bytes.len() < LEAST {
        return None;
    }
    let mut planes = Vec::with_capacity(bytes.len());
    for plane in 0..size_of::<T>() {
        planes.extend(bytes.iter().skip(plane).step_by(size_of::<T>()));
    }
    let compressed = lz4_flex::block::compress(&planes);
    (compressed.len() < bytes.len()).then(|| compressed.into())
}

/// The `count` numbers again, unless they take more than `limit` bytes.
pub(super) fn decompress<T: Pod>(
    packed: &[u8],
    count: u64,
    limit: usize,
) -> Result<Vec<T>, UnpackError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let length = count.saturating_mul(size_of::<T>());
    if length > limit {
        return Err(UnpackError::TooLong { length, limit });
    }
    if length > packed.len().saturating_mul(MOST_FROM_ONE) {
        return Err(UnpackError::Corrupt);
    }
    let mut planes = vec![0u8; length];
    match lz4_flex::block::decompress_into(packed, &mut planes) {
        Ok(found) if found == length => {}
        _ => return Err(UnpackError::Corrupt),
    }
    let mut numbers = vec![T::zeroed(); count];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut numbers);
    for (place, plane) in planes.chunks_exact(count.max(1)).enumerate() {
        let places = bytes.iter_mut().skip(place).step_by(size_of::<T>());
        places.zip(plane).for_each(|(byte, from)| *byte = *from);
    }
    Ok(numbers)
}

/// Each key less the one before.
pub(super) fn differences(keys: &[Key]) -> Vec<Key> {
    let mut last = 0;
    let difference = |&key: &Key| key.wrapping_sub(std::mem::replace(&mut last, key));
    keys.iter().map(difference).collect()
}

pub(super) fn sums(mut differences: Vec<Key>) -> Vec<Key> {
    let mut sum: Key = 0;
    for key in &mut differences {
        sum = sum.wrapping_add(*key);
        *key = sum;
    }
    differences
}
