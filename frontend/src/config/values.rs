//! Defaults that several tables share.

pub(super) const fn two() -> u32 {
    2
}
