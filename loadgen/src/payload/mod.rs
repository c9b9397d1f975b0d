//! Payload: samples as request bodies, all encoded before the run so that sending costs
//! next to nothing.

mod bodies;
mod rows;

pub use bodies::{Bodies, Body, MAX_DISTINCT, RequestOptions, WireEncoding};
pub use rows::Rows;
