//! Identifiers. Each is its own type, so that none is taken for another; none is ever used again.

/// An accepted query. Carries its class, so that everything said of it can be routed with no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(u64);

/// A coding group. Carries the class of its queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u64);

/// A class of requests, with a redundancy strategy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClassId(pub u8);

impl ClassId {
    /// The class of requests that name none.
    pub const DEFAULT: Self = Self(0);
}

/// The class is in the top byte, the serial number below it: 2^56 of them last for two thousand
/// years at a million queries a second.
const SERIAL_BITS: u32 = 56;

const fn with_class(serial: u64, class: ClassId) -> u64 {
    (class.0 as u64) << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1)
}

macro_rules! classed {
    ($($type:ident),*) => {$(
        impl $type {
            pub(crate) const fn new(serial: u64, class: ClassId) -> Self {
                Self(with_class(serial, class))
            }

            /// Returns the class.
            pub const fn class(self) -> ClassId {
                ClassId((self.0 >> SERIAL_BITS) as u8)
            }

            const fn serial(self) -> u64 {
                self.0 & ((1 << SERIAL_BITS) - 1)
            }
        }
    )*};
}
classed!(QueryId, GroupId);

impl GroupId {
    /// A number below `bound` that follows from the id; all are equally frequent.
    pub(crate) const fn draw(self, bound: usize) -> usize {
        // The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
        let mut bits = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits as u128 * bound as u128) >> 64) as usize
    }
}

/// One request to one instance: an attempt of a query, or a parity query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u64);

impl JobId {
    const fn serial(self) -> u64 {
        self.0
    }
}

macro_rules! display {
    ($($type:ident $prefix:literal),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.serial())
            }
        }
    )*};
}
display!(QueryId "q", GroupId "g", JobId "j");

/// A pool of instances that serve one model: the deployed one, a parity row's, or a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u8);

impl PoolId {
    /// The pool of the deployed model.
    pub const DEPLOYED: Self = Self(0);

    /// The first pool after the deployed model's: parity row 0's, or the backup model's.
    pub const FIRST_REDUNDANT: Self = Self(1);

    /// The pool of the parity model of `row`, when this is that of row 0.
    pub const fn of_row(self, row: Row) -> Self {
        Self(self.0.saturating_add(row.0))
    }
}

/// One instance of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId {
    /// Pool of the instance.
    pub pool: PoolId,
    /// Its place in the pool's configuration; those that join later are numbered on.
    pub index: u32,
}

/// A query's place in its coding group, `0..k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

/// A parity row, `0..r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u8);

/// Tenants whose queries may share coding groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// Common ground of queries that may share a group. Only queries of equal keys may mix (CG-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Mixing domain of its tenants.
    pub domain: DomainId,
    /// Model, version, shape and datatype: the driver gives each combination a number.
    pub kind: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_the_first_numbers_of_split_mix() {
        // The generator's first number, by its published code, from the seeds 0 and 1234567.
        let published = [(0, 0xe220_a839_7b1d_cdaf), (1_234_567, 6_457_827_717_110_365_317_u64)];
        for (seed, number) in published {
            assert_eq!(GroupId(seed).draw(1 << 63) as u64, number >> 1);
        }
    }
}
