//! Where checkpoints are kept.

use std::path::Path as File;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;

use crate::{CheckpointError, Checkpoints};

/// The checkpoints at a place: a folder, which is made if it is not there; `memory:`, for tests; or a URL of an object
/// store (`s3://`, `gs://`, `az://`), whose keys are taken from the environment, if this binary was built with the
/// store's feature.
///
/// # Errors
/// If the place cannot be used.
pub fn place(given: &str, keep: usize) -> Result<Checkpoints, CheckpointError> {
    let wrong = |cause: String| CheckpointError::Place { given: given.to_owned(), cause };
    if given == "memory:" {
        return Ok(Checkpoints::new(Arc::new(InMemory::new()), Path::default(), keep));
    }
    if given.contains("://") {
        return remote(given, keep);
    }
    let folder = File::new(given);
    std::fs::create_dir_all(folder).map_err(|error| wrong(error.to_string()))?;
    let store = LocalFileSystem::new_with_prefix(folder).map_err(|error| wrong(error.to_string()))?;
    // A power cut must not leave a manifest without its shards, and what is removed no empty folders.
    let store = store.with_fsync(true).with_automatic_cleanup(true);
    Ok(Checkpoints::new(Arc::new(store), Path::default(), keep))
}

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
fn remote(given: &str, keep: usize) -> Result<Checkpoints, CheckpointError> {
    let wrong = |cause: String| CheckpointError::Place { given: given.to_owned(), cause };
    let url = url::Url::parse(given).map_err(|error| wrong(error.to_string()))?;
    let (store, prefix) =
        object_store::parse_url_opts(&url, std::env::vars()).map_err(|error| wrong(error.to_string()))?;
    Ok(Checkpoints::new(Arc::from(store), prefix, keep))
}

#[cfg(not(any(feature = "s3", feature = "gcs", feature = "azure")))]
fn remote(given: &str, _keep: usize) -> Result<Checkpoints, CheckpointError> {
    let cause = "this binary was built without object stores: build it with the feature s3, gcs or azure";
    Err(CheckpointError::Place { given: given.to_owned(), cause: cause.to_owned() })
}
