//! Models that cannot be loaded.

use parapet_config::FileError;

/// A model that cannot be loaded, in one line; stops start-up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Repository(#[from] FileError),
    /// The file, the problem and the fix.
    #[error("{0}")]
    Unusable(String),
}
