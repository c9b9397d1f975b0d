//! Checkpoints of the parameter server: on a disk or in an object store, consistent across servers, for any number of
//! servers to start from.
//!
//! - [`ShardState`] is what one server holds of one shard: rows, optimiser state, clocks. Each server writes its own.
//! - [`Cut`] is what makes them one state: in all shards, each worker's updates up to the same clock and none after.
//!   [`parapet_parameter_server::Server::hold`] brings servers there under every consistency model, while workers go on
//!   up to that clock.
//! - [`Checkpoints`] keeps them: shards as safetensors files, then a manifest with each one's size and SHA-256. Only a
//!   manifest makes a checkpoint, and only one whose shards are all whole is ever picked.
//! - [`Restore`] hands a checkpoint to servers that need not be as many as those that wrote it, as the pieces in which
//!   shards are copied between servers anyway.

mod checkpoints;
mod cut;
mod error;
mod file;
mod files;
mod manifest;
mod place;
mod restore;
mod rows;
mod state;

pub use checkpoints::{Checkpoints, Found, Skipped};
pub use cut::{Cut, CutError};
pub use error::CheckpointError;
pub use file::ShardFile;
pub use manifest::{ArrayEntry, Manifest, ShardEntry};
pub use place::place;
pub use restore::{Restore, RestoreError};
pub use state::ShardState;
