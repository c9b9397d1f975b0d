//! Dynamic batching: requests that wait together run together.
//!
//! [`BatchPolicy`] decides, purely, when a batch is closed. A bounded queue holds what waits; one
//! thread for each model takes batches from it, joins the requests on the batch axis, runs the
//! engine, and splits the outputs again. With a delay of zero a batch is whatever waits when the
//! engine becomes free, so that a single request waits for nothing.

mod batcher;
mod join;
mod queue;

pub use batcher::{BatchError, Batcher};
pub use queue::BatchPolicy;
