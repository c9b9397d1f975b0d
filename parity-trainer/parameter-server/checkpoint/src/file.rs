//! A shard's file on its way to and from the store. Both ways take the processor for a while: keep them off threads that
//! answer others.

use crate::manifest::{ShardEntry, digest};
use crate::{CheckpointError, ShardState, files};

/// A shard as the file that it is to become.
#[derive(Debug, Clone)]
pub struct ShardFile {
    pub(crate) entry: ShardEntry,
    pub(crate) contents: Vec<u8>,
}

impl ShardFile {
    /// The file of this shard.
    ///
    /// # Errors
    /// If it cannot be one.
    pub fn of(shard: &ShardState) -> Result<Self, CheckpointError> {
        let range = shard.range();
        let file = format!("array-{}-{}-{}.safetensors", shard.array.0, range.start, range.end);
        let contents = files::encode(shard).map_err(|cause| CheckpointError::damaged(&file, cause))?;
        Ok(Self { entry: ShardEntry::new(shard, file, &contents), contents })
    }
}

impl ShardEntry {
    /// The shard, if these are the contents that were written.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if they are not.
    pub fn decode(&self, contents: &[u8]) -> Result<ShardState, CheckpointError> {
        if contents.len() as u64 != self.bytes || digest(contents) != self.sha256 {
            return Err(CheckpointError::damaged(&self.file, "its size or SHA-256 is another one"));
        }
        let shard = files::decode(contents).map_err(|cause| CheckpointError::damaged(&self.file, cause))?;
        if (shard.array, shard.range()) != (self.array(), self.range()) {
            return Err(CheckpointError::damaged(&self.file, "it is another shard's"));
        }
        Ok(shard)
    }
}
