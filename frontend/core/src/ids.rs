//! Identifiers. Each is its own type, so that none is taken for another; none is ever used again.

/// An accepted query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub(crate) u64);

/// A coding group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) u64);

/// One request to one instance: an attempt of a query, or a parity query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u64);

macro_rules! display {
    ($($type:ident $prefix:literal),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}
display!(QueryId "q", GroupId "g", JobId "j");

/// A pool of instances that serve the same model: the deployed model's, or those of one parity row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u8);

impl PoolId {
    /// The pool of the deployed model.
    pub const DEPLOYED: Self = Self(0);

    /// The pool of the parity model of `row`.
    pub const fn parity(row: Row) -> Self {
        Self(row.0 + 1)
    }
}

/// One instance of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId {
    /// Its pool.
    pub pool: PoolId,
    /// Its place in the pool's configuration.
    pub index: u32,
}

/// A query's place in its coding group, `0..k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

/// A parity row, `0..r`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u8);

/// What queries must have in common to share a group: model, version, shape, dtype, and tenants that allow it.
///
/// The driver assigns equal numbers exactly to queries that may mix (CG-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(pub u64);
