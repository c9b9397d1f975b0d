//! What a checkpoint consists of.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{ArrayId, Clock, KeyRange, WorkerClock, WorkerId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Cut;

const FORMAT: u32 = 2;

/// An array: what servers have to know of it before they can hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayEntry {
    array: u32,
    start: u64,
    end: u64,
    /// Into how many shards it is to be cut.
    pub shards: u64,
    /// Its rows, rule and consistency model, as whoever defined it described them.
    pub description: String,
}

impl ArrayEntry {
    /// An array with these keys.
    pub const fn new(array: ArrayId, keys: KeyRange, shards: u64, description: String) -> Self {
        Self { array: array.0, start: keys.start, end: keys.end, shards, description }
    }

    /// The array.
    pub const fn array(&self) -> ArrayId {
        ArrayId(self.array)
    }

    /// All of its keys.
    pub const fn keys(&self) -> KeyRange {
        KeyRange::new(self.start, self.end)
    }
}

/// One shard's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// Its name, in the checkpoint's folder.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal.
    pub sha256: String,
    array: u32,
    start: u64,
    end: u64,
    /// Worker, first key, end, clock.
    clocks: Vec<(u64, u64, u64, u64)>,
}

impl ShardEntry {
    pub(crate) fn new(shard: &crate::ShardState, file: String, contents: &[u8]) -> Self {
        let clocks = shard.clocks.iter().map(|c| (c.worker.0, c.range.start, c.range.end, c.clock.0));
        Self {
            file,
            bytes: contents.len() as u64,
            sha256: digest(contents),
            array: shard.array.0,
            start: shard.range().start,
            end: shard.range().end,
            clocks: clocks.collect(),
        }
    }

    /// The array.
    pub const fn array(&self) -> ArrayId {
        ArrayId(self.array)
    }

    /// The keys.
    pub const fn range(&self) -> KeyRange {
        KeyRange::new(self.start, self.end)
    }

    /// What the shard contains of each worker.
    pub fn clocks(&self) -> Vec<WorkerClock> {
        let clock = |&(worker, start, end, clock): &(u64, u64, u64, u64)| WorkerClock {
            worker: WorkerId(worker),
            range: KeyRange::new(start, end),
            clock: Clock(clock),
        };
        self.clocks.iter().map(clock).collect()
    }
}

/// A checkpoint: its shards, and the moment they are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// Later checkpoints have higher numbers.
    pub number: u64,
    /// Each worker's clock.
    cut: BTreeMap<u64, u64>,
    /// The arrays, each whole in the shards.
    pub arrays: Vec<ArrayEntry>,
    /// By array and first key.
    pub shards: Vec<ShardEntry>,
}

/// A manifest with its own digest.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sha256: String,
    checkpoint: Manifest,
}

impl Manifest {
    pub(crate) fn new(number: u64, cut: &Cut, arrays: Vec<ArrayEntry>, mut shards: Vec<ShardEntry>) -> Self {
        shards.sort_by_key(|shard| (shard.array, shard.start));
        let cut = cut.0.iter().map(|(worker, clock)| (worker.0, clock.0)).collect();
        Self { format: FORMAT, number, cut, arrays, shards }
    }

    /// Which arrays it is of.
    pub fn set(&self) -> BTreeSet<ArrayId> {
        self.arrays.iter().map(ArrayEntry::array).collect()
    }

    /// The moment that the shards are of.
    pub fn cut(&self) -> Cut {
        Cut(self.cut.iter().map(|(&worker, &clock)| (WorkerId(worker), Clock(clock))).collect())
    }

    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let contents = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let sealed = Sealed { sha256: digest(&contents), checkpoint: self.clone() };
        serde_json::to_vec_pretty(&sealed).map_err(|error| error.to_string())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let sealed: Sealed = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let contents = serde_json::to_vec(&sealed.checkpoint).map_err(|error| error.to_string())?;
        if sealed.checkpoint.format != FORMAT {
            return Err(format!("it has format {}, this version reads {FORMAT}", sealed.checkpoint.format));
        }
        if digest(&contents) != sealed.sha256 {
            return Err("its SHA-256 is another one".to_owned());
        }
        Ok(sealed.checkpoint)
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
