//! Dynamic batching: requests that wait together run together.
//!
//! [`BatchPolicy`] decides, purely, when a batch is closed. A bounded queue holds what waits; a
//! thread for each of the model's engines takes batches from it, joins the requests on the batch
//! axis, runs the engine, and splits the outputs again; so does the thread of a request, while
//! batches are short. With a delay of zero a batch is whatever waits when an engine becomes free, so
//! that a single request waits for nothing.

mod batcher;
mod full;
mod join;
mod queue;

pub use batcher::{BatchError, Batcher};
pub(crate) use full::FullBatches;
pub use queue::BatchPolicy;
