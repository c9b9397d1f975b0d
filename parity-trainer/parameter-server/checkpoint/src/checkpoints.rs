//! The checkpoints of a cluster, in a store of files.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use sha2::{Digest, Sha256};

use crate::cut::check_gaps;
use crate::manifest::{Manifest, ShardEntry};
use crate::{CheckpointError, Cut, ShardState, files};

const MANIFEST: &str = "manifest.json";
/// Above this, a file goes in parts: object stores limit what one request may carry.
const ONE_PUT: usize = 64 << 20;
const PART: usize = 16 << 20;

/// The checkpoints of a cluster: `PREFIX/NUMBER/manifest.json` beside the shards' files.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    keep: usize,
}

/// A checkpoint that is not whole, and why.
#[derive(Debug)]
pub struct Skipped {
    /// Its number.
    pub number: u64,
    /// What is wrong with it.
    pub error: CheckpointError,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest checkpoint that is whole.
    pub newest: Option<Manifest>,
    /// Newer ones that are not: interrupted, or damaged.
    pub skipped: Vec<Skipped>,
}

impl Checkpoints {
    /// Those under `prefix`, of which the last `keep` are kept, at least one.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, keep: usize) -> Self {
        Self { store, prefix, keep: keep.max(1) }
    }

    /// The number for a new checkpoint: above all that were begun.
    ///
    /// # Errors
    /// If the store cannot be listed.
    pub async fn next_number(&self) -> Result<u64, CheckpointError> {
        Ok(self.folders().await?.keys().last().map_or(1, |last| last.saturating_add(1)))
    }

    /// Writes one shard's file, wherever the shard is. Gives the entry for the manifest.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it stays then.
    pub async fn write_shard(&self, number: u64, shard: &ShardState) -> Result<ShardEntry, CheckpointError> {
        let range = shard.range();
        let file = format!("array-{}-{}-{}.safetensors", shard.array.0, range.start, range.end);
        let path = self.folder(number).join(file.as_str());
        let contents = files::encode(shard).map_err(|cause| CheckpointError::damaged(&path, cause))?;
        let entry = ShardEntry::new(shard, file, &contents);
        self.write(&path, contents).await?;
        Ok(entry)
    }

    /// Makes a checkpoint of shards that are written, and removes what is too old.
    ///
    /// # Errors
    /// If the shards are not of one moment, keys are missing, or the manifest cannot be written. There is no such
    /// checkpoint then.
    pub async fn commit(&self, number: u64, shards: Vec<ShardEntry>) -> Result<Manifest, CheckpointError> {
        check_gaps(shards.iter().map(|shard| (shard.array(), shard.range())).collect())?;
        let clocks: Vec<_> =
            shards.iter().map(|shard| (shard.array(), shard.range(), shard.clocks())).collect();
        let cut = Cut::of(clocks.iter().map(|(array, range, clocks)| (*array, *range, &clocks[..])))?;
        let manifest = Manifest::new(number, &cut, shards);
        let path = self.folder(number).join(MANIFEST);
        let contents = manifest.encode().map_err(|cause| CheckpointError::damaged(&path, cause))?;
        self.write(&path, contents).await?;
        if let Err(error) = self.prune().await {
            // The checkpoint is there; only old ones are in the way.
            tracing::warn!(%error, "old checkpoints could not be removed");
        }
        Ok(manifest)
    }

    /// Removes what was written of a checkpoint that is given up.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn abandon(&self, number: u64) -> Result<(), CheckpointError> {
        match self.folders().await?.remove(&number) {
            Some(files) => self.remove(files).await,
            None => Ok(()),
        }
    }

    /// The newest checkpoint whose every file is there, has its size and its SHA-256.
    ///
    /// # Errors
    /// If the store cannot be listed or read at all.
    pub async fn newest(&self) -> Result<Found, CheckpointError> {
        let mut found = Found::default();
        for number in self.folders().await?.into_keys().rev() {
            match self.check(number).await {
                Ok(manifest) => {
                    found.newest = Some(manifest);
                    break;
                }
                Err(error @ CheckpointError::Damaged { .. }) => found.skipped.push(Skipped { number, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Reads one shard.
    ///
    /// # Errors
    /// If it cannot be read, or is not what the manifest says.
    pub async fn read_shard(&self, number: u64, entry: &ShardEntry) -> Result<ShardState, CheckpointError> {
        let path = self.folder(number).join(entry.file.as_str());
        let contents = self.read(&path).await?;
        if contents.len() as u64 != entry.bytes || crate::manifest::digest(&contents) != entry.sha256 {
            return Err(CheckpointError::damaged(&path, "its size or SHA-256 is another one"));
        }
        let shard = files::decode(&contents).map_err(|cause| CheckpointError::damaged(&path, cause))?;
        if (shard.array, shard.range()) != (entry.array(), entry.range()) {
            return Err(CheckpointError::damaged(&path, "it is another shard's"));
        }
        Ok(shard)
    }

    fn folder(&self, number: u64) -> Path {
        self.prefix.clone().join(format!("{number:020}"))
    }

    async fn check(&self, number: u64) -> Result<Manifest, CheckpointError> {
        let folder = self.folder(number);
        let path = folder.clone().join(MANIFEST);
        let contents = self.read(&path).await?;
        let manifest = Manifest::decode(&contents).map_err(|cause| CheckpointError::damaged(&path, cause))?;
        if manifest.number != number {
            return Err(CheckpointError::damaged(&path, "it is another checkpoint's"));
        }
        for entry in &manifest.shards {
            let path = folder.clone().join(entry.file.as_str());
            let (bytes, sha256) = self.measure(&path).await?;
            if bytes != entry.bytes {
                let cause = format!("it has {bytes} bytes, {} were written", entry.bytes);
                return Err(CheckpointError::damaged(&path, cause));
            }
            if sha256 != entry.sha256 {
                return Err(CheckpointError::damaged(&path, "its SHA-256 is another one"));
            }
        }
        Ok(manifest)
    }

    /// All numbers that were begun, each with its files.
    async fn folders(&self) -> Result<BTreeMap<u64, Vec<Path>>, CheckpointError> {
        let failed = |error| CheckpointError::store(&self.prefix, "listed", &error);
        let mut folders: BTreeMap<u64, Vec<Path>> = BTreeMap::new();
        let mut files = self.store.list(Some(&self.prefix));
        while let Some(file) = files.try_next().await.map_err(failed)? {
            let number = file.location.prefix_match(&self.prefix).and_then(|mut parts| {
                let number = parts.next()?.as_ref().parse().ok()?;
                parts.next().map(|_| number)
            });
            if let Some(number) = number {
                folders.entry(number).or_default().push(file.location);
            }
        }
        Ok(folders)
    }

    /// Keeps the last whole checkpoints, and whatever is newer. What is torn may be in the making, if it is the newest.
    async fn prune(&self) -> Result<(), CheckpointError> {
        let mut whole = 0;
        for (_, files) in self.folders().await?.into_iter().rev() {
            let has_manifest = files.iter().any(|file| file.filename() == Some(MANIFEST));
            if whole >= self.keep || (whole > 0 && !has_manifest) {
                self.remove(files).await?;
            }
            whole += usize::from(has_manifest);
        }
        Ok(())
    }

    /// The manifest first: without it the rest is no checkpoint.
    async fn remove(&self, mut files: Vec<Path>) -> Result<(), CheckpointError> {
        files.sort_by_key(|file| file.filename() != Some(MANIFEST));
        for file in files {
            match self.store.delete(&file).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(CheckpointError::store(&file, "removed", &error)),
            }
        }
        Ok(())
    }

    async fn write(&self, path: &Path, contents: Vec<u8>) -> Result<(), CheckpointError> {
        let failed = |error| CheckpointError::store(path, "written", &error);
        if contents.len() <= ONE_PUT {
            return self.store.put(path, PutPayload::from(contents)).await.map(|_| ()).map_err(failed);
        }
        let upload = self.store.put_multipart(path).await.map_err(failed)?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART);
        for part in contents.chunks(PART) {
            parts.wait_for_capacity(4).await.map_err(failed)?;
            parts.write(part);
        }
        parts.finish().await.map(|_| ()).map_err(failed)
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, CheckpointError> {
        let result = async { self.store.get(path).await?.bytes().await };
        match result.await {
            Ok(contents) => Ok(contents.to_vec()),
            Err(error) => Err(missing_or(path, &error)),
        }
    }

    /// Size and SHA-256 of a file, read piece by piece.
    async fn measure(&self, path: &Path) -> Result<(u64, String), CheckpointError> {
        let result = async {
            let mut pieces = self.store.get(path).await?.into_stream();
            let (mut bytes, mut hash) = (0, Sha256::new());
            while let Some(piece) = pieces.try_next().await? {
                bytes += piece.len() as u64;
                hash.update(&piece);
            }
            Ok((bytes, format!("{:x}", hash.finalize())))
        };
        result.await.map_err(|error| missing_or(path, &error))
    }
}

fn missing_or(path: &Path, error: &object_store::Error) -> CheckpointError {
    match error {
        object_store::Error::NotFound { .. } => CheckpointError::damaged(path, "it is missing"),
        error => CheckpointError::store(path, "read", error),
    }
}
