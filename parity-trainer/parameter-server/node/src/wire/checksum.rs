//! XXH3 of a frame, block by block.

use twox_hash::XxHash3_64;

/// Fits a processor's second-level cache.
pub(super) const BLOCK: usize = 256 * 1024;

/// The hash of `bytes` after what `hash` stands for. A section is added in blocks of [`BLOCK`], the last one shorter.
pub(super) fn add(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(BLOCK).fold(hash, XxHash3_64::oneshot_with_seed)
}

/// Whether two checksums agree. A fuzzer is not asked to find one.
pub(super) fn agree<T: PartialEq>(one: T, other: T) -> bool {
    one == other || cfg!(feature = "fuzzing")
}

/// The check of a header's other fields.
pub(super) fn of_header(fields: &[u8]) -> u32 {
    let hash = XxHash3_64::oneshot(fields);
    u32::from_le_bytes(first_four(hash.to_le_bytes()))
}

const fn first_four(bytes: [u8; 8]) -> [u8; 4] {
    let [a, b, c, d, ..] = bytes;
    [a, b, c, d]
}
