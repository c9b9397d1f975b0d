//! Parapet: inference engines, dynamic batching and the model-instance server.
//!
//! An [`Instance`] serves models of a repository by the Open Inference Protocol. A request's path:
//!
//! ```text
//! server (decode, admit) -> batching (queue, join) -> engine (ONNX Runtime)
//!                                                          |
//!                        server (encode) <- batching (split)
//! ```
//!
//! The server runs on tokio; each model's batches run on threads of the batcher's. Nothing here
//! knows of coding: an instance of a parity model is an instance like any other.

#![allow(missing_docs, reason = "the instance builds on it alone")]

pub mod batching;
pub mod config;
pub mod describe;
pub mod engine;
pub mod faults;
mod instance;
pub mod metrics;
mod server;

pub use config::Config;
pub use instance::{Instance, StartError};
