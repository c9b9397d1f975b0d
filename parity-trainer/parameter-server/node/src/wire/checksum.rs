//! CRC-64/NVME of a frame, piece by piece as its bytes pass.

use crc_fast::CrcAlgorithm::Crc64Nvme;
use crc_fast::Digest;
use twox_hash::XxHash3_64;

/// The checksum of bytes that come in any pieces.
#[derive(Clone, Copy)]
pub(super) struct Sum(Digest);

impl Sum {
    /// Of nothing.
    pub(super) fn new() -> Self {
        Self(Digest::new(Crc64Nvme))
    }

    /// Of `bytes`, for short ones.
    pub(super) fn of(bytes: &[u8]) -> u64 {
        crc_fast::checksum(Crc64Nvme, bytes)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.finalize()
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.get())
    }
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
