//! Payload: samples as request bodies, all encoded before the run so that sending costs
//! next to nothing.

mod bodies;
mod npz;
mod rows;
mod values;

pub use bodies::{Bodies, BodiesError, Body, MAX_DISTINCT, RequestOptions, WireEncoding};
pub use npz::NpzError;
pub use parapet_datasets::idx::IdxError;
pub use rows::{Rows, RowsError, Source};
