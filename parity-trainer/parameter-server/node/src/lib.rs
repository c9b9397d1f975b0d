//! Wire only, for now.
pub mod wire;
