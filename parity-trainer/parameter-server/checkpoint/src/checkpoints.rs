//! The checkpoints of a cluster, in a store of files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};
use parapet_parameter_server::ArrayId;
use sha2::{Digest, Sha256};

use crate::cut::check_gaps;
use crate::manifest::{ArrayEntry, Manifest, ShardEntry};
use crate::{CheckpointError, Cut, ShardFile, ShardState};

const MANIFEST: &str = "manifest.json";
/// There from the beginning: its number is taken.
const BEGUN: &str = "begun";
/// Above this, a file goes in parts: object stores limit what one request may carry.
const ONE_PUT: usize = 64 << 20;
const PART: usize = 16 << 20;
/// Files that are asked about at the same time.
const AT_ONCE: usize = 16;
/// What was begun so long before others were finished is not in the making any longer.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// The checkpoints of a cluster: `PREFIX/NUMBER/manifest.json` beside the shards' files.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    keep: usize,
    given_up: Duration,
}

/// A checkpoint's files, whole or not.
struct Folder {
    files: Vec<Path>,
    /// When the last of them was written, by the store's clock.
    written: SystemTime,
}

impl Folder {
    fn has_manifest(&self) -> bool {
        self.files.iter().any(|file| file.filename() == Some(MANIFEST))
    }
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
    /// Those under `prefix`, of which the last `keep` of each set of arrays are kept, at least one.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: Path, keep: usize) -> Self {
        Self { store, prefix, keep: keep.max(1), given_up: GIVEN_UP }
    }

    /// Takes checkpoints for given up that are not whole, and were written to last so long before a later one was finished; an
    /// hour otherwise. Longer than one may take.
    #[must_use]
    pub fn given_up_after(self, given_up: Duration) -> Self {
        Self { given_up, ..self }
    }

    /// Begins a new checkpoint, whoever else begins one at the same time. Gives its number, above all that were begun.
    ///
    /// # Errors
    /// If the store cannot be listed or written to.
    pub async fn begin(&self) -> Result<u64, CheckpointError> {
        let mut number = self.folders().await?.keys().last().map_or(1, |last| last.saturating_add(1));
        loop {
            let path = self.folder(number).join(BEGUN);
            match self.store.put_opts(&path, PutPayload::new(), PutMode::Create.into()).await {
                Ok(_) => return Ok(number),
                Err(object_store::Error::AlreadyExists { .. }) => number = number.saturating_add(1),
                Err(error) => return Err(CheckpointError::store(&path, "written", &error)),
            }
        }
    }

    /// Writes one shard's file, wherever the shard is. Gives the entry for the manifest.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it stays then.
    pub async fn write_shard(&self, number: u64, shard: &ShardState) -> Result<ShardEntry, CheckpointError> {
        self.write_file(number, ShardFile::of(shard)?).await
    }

    /// [`Checkpoints::write_shard`] of a file that was made elsewhere.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it stays then.
    pub async fn write_file(&self, number: u64, file: ShardFile) -> Result<ShardEntry, CheckpointError> {
        let ShardFile { entry, contents } = file;
        self.write(&self.folder(number).join(entry.file.as_str()), contents).await?;
        Ok(entry)
    }

    /// Makes a checkpoint of arrays whose shards are written, and removes what is too old.
    ///
    /// # Errors
    /// If the shards are not of one moment, keys are missing, a file is not there (a place that servers do not share), or the
    /// manifest cannot be written. There is no such checkpoint then.
    pub async fn commit(
        &self,
        number: u64,
        arrays: Vec<ArrayEntry>,
        shards: Vec<ShardEntry>,
    ) -> Result<Manifest, CheckpointError> {
        let whole: Vec<_> = arrays.iter().map(|array| (array.array(), array.keys())).collect();
        check_gaps(&whole, shards.iter().map(|shard| (shard.array(), shard.range())).collect())?;
        let clocks: Vec<_> =
            shards.iter().map(|shard| (shard.array(), shard.range(), shard.clocks())).collect();
        let cut = Cut::of(clocks.iter().map(|(array, range, clocks)| (*array, *range, &clocks[..])))?;
        let manifest = Manifest::new(number, &cut, arrays, shards);
        self.check_sizes(&manifest).await?;
        let path = self.folder(number).join(MANIFEST);
        let contents = manifest.encode().map_err(|cause| CheckpointError::damaged(&path, cause))?;
        self.write(&path, contents).await?;
        if let Err(error) = self.prune().await {
            // The checkpoint is there; only old ones are in the way.
            tracing::warn!(%error, "old checkpoints could not be removed");
        }
        Ok(manifest)
    }

    /// Removes what was written of a checkpoint that is given up. Its number stays taken: a file may still come.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn abandon(&self, number: u64) -> Result<(), CheckpointError> {
        let Some(mut folder) = self.folders().await?.remove(&number) else { return Ok(()) };
        folder.files.retain(|file| file.filename() != Some(BEGUN));
        self.remove(folder.files).await
    }

    /// The newest checkpoint whose every file is there, has its size and its SHA-256.
    ///
    /// # Errors
    /// If the store cannot be listed or read at all.
    pub async fn newest(&self) -> Result<Found, CheckpointError> {
        self.newest_where(|_| true).await
    }

    /// The newest of these arrays, of no others and no fewer.
    ///
    /// # Errors
    /// If the store cannot be listed or read at all.
    pub async fn newest_of(&self, arrays: &BTreeSet<ArrayId>) -> Result<Found, CheckpointError> {
        self.newest_where(|manifest| manifest.set() == *arrays).await
    }

    async fn newest_where(&self, wanted: impl Fn(&Manifest) -> bool) -> Result<Found, CheckpointError> {
        let mut found = Found::default();
        for number in self.folders().await?.into_keys().rev() {
            let checked = match self.manifest(number).await {
                Ok(manifest) if !wanted(&manifest) => continue,
                Ok(manifest) => self.check_contents(&manifest).await.map(|()| manifest),
                Err(error) => Err(error),
            };
            match checked {
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

    /// The sets of arrays of which there are checkpoints.
    ///
    /// # Errors
    /// If the store cannot be listed or read at all.
    pub async fn sets(&self) -> Result<BTreeSet<BTreeSet<ArrayId>>, CheckpointError> {
        let mut sets = BTreeSet::new();
        for (number, _) in self.folders().await?.into_iter().filter(|(_, folder)| folder.has_manifest()) {
            match self.manifest(number).await {
                Ok(manifest) => {
                    sets.insert(manifest.set());
                }
                Err(CheckpointError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sets)
    }

    /// Reads one shard.
    ///
    /// # Errors
    /// If it cannot be read, or is not what the manifest says.
    pub async fn read_shard(&self, number: u64, entry: &ShardEntry) -> Result<ShardState, CheckpointError> {
        entry.decode(&self.read_file(number, entry).await?)
    }

    /// The contents of one shard's file, for [`ShardEntry::decode`].
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn read_file(&self, number: u64, entry: &ShardEntry) -> Result<Vec<u8>, CheckpointError> {
        self.read(&self.folder(number).join(entry.file.as_str())).await
    }

    fn folder(&self, number: u64) -> Path {
        self.prefix.clone().join(format!("{number:020}"))
    }

    /// What a checkpoint consists of, without a look at its shards: [`Checkpoints::read_shard`] checks each.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if there is none, or it is not as it was written.
    pub async fn manifest(&self, number: u64) -> Result<Manifest, CheckpointError> {
        let path = self.folder(number).join(MANIFEST);
        let contents = self.read(&path).await?;
        let manifest = Manifest::decode(&contents).map_err(|cause| CheckpointError::damaged(&path, cause))?;
        if manifest.number != number {
            return Err(CheckpointError::damaged(&path, "it is another checkpoint's"));
        }
        Ok(manifest)
    }

    /// The checkpoint of this number, if its every file is there, has its size and its SHA-256.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if it is not whole, or there is none.
    pub async fn numbered(&self, number: u64) -> Result<Manifest, CheckpointError> {
        let manifest = self.manifest(number).await?;
        self.check_contents(&manifest).await?;
        Ok(manifest)
    }

    async fn check_contents(&self, manifest: &Manifest) -> Result<(), CheckpointError> {
        for entry in &manifest.shards {
            let path = self.folder(manifest.number).join(entry.file.as_str());
            let (bytes, sha256) = self.measure(&path).await?;
            if bytes != entry.bytes {
                let cause = format!("it has {bytes} bytes, {} were written", entry.bytes);
                return Err(CheckpointError::damaged(&path, cause));
            }
            if sha256 != entry.sha256 {
                return Err(CheckpointError::damaged(&path, "its SHA-256 is another one"));
            }
        }
        Ok(())
    }

    /// Whether the files are here, too, that servers say they have written.
    async fn check_sizes(&self, manifest: &Manifest) -> Result<(), CheckpointError> {
        let checks = manifest.shards.iter().map(|entry| async move {
            let path = self.folder(manifest.number).join(entry.file.as_str());
            let cause = match self.store.head(&path).await {
                Ok(found) if found.size == entry.bytes => return Ok(()),
                Ok(found) => format!("it has {} bytes, {} were written", found.size, entry.bytes),
                Err(object_store::Error::NotFound { .. }) => "it is missing".to_owned(),
                Err(error) => return Err(CheckpointError::store(&path, "looked at", &error)),
            };
            Err(CheckpointError::NotShared { path: path.to_string(), cause })
        });
        futures::stream::iter(checks).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(|_| ())
    }

    /// All numbers that were begun.
    async fn folders(&self) -> Result<BTreeMap<u64, Folder>, CheckpointError> {
        let failed = |error| CheckpointError::store(&self.prefix, "listed", &error);
        let mut folders: BTreeMap<u64, Folder> = BTreeMap::new();
        let mut files = self.store.list(Some(&self.prefix));
        while let Some(file) = files.try_next().await.map_err(failed)? {
            let number = file.location.prefix_match(&self.prefix).and_then(|mut parts| {
                let number = parts.next()?.as_ref().parse().ok()?;
                parts.next().map(|_| number)
            });
            if let Some(number) = number {
                let written = SystemTime::from(file.last_modified);
                let folder = folders.entry(number).or_insert(Folder { files: Vec::new(), written });
                folder.written = folder.written.max(written);
                folder.files.push(file.location);
            }
        }
        Ok(folders)
    }

    /// Keeps the last ones of each set of arrays, and what is not whole if it is newer or may be in the making.
    async fn prune(&self) -> Result<(), CheckpointError> {
        // What cannot be read (another version wrote it) is a set of its own.
        let mut kept: BTreeMap<Option<BTreeSet<ArrayId>>, usize> = BTreeMap::new();
        let mut finished: Option<SystemTime> = None;
        for (number, folder) in self.folders().await?.into_iter().rev() {
            let is_over = if folder.has_manifest() {
                let set = match self.manifest(number).await {
                    Ok(manifest) => Some(manifest.set()),
                    Err(CheckpointError::Damaged { .. }) => None,
                    Err(error) => return Err(error),
                };
                finished = finished.max(Some(folder.written));
                let kept = kept.entry(set).or_default();
                *kept += 1;
                *kept > self.keep
            } else {
                let age = finished.and_then(|finished| finished.duration_since(folder.written).ok());
                age.is_some_and(|age| age >= self.given_up)
            };
            if is_over {
                self.remove(folder.files).await?;
            }
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
