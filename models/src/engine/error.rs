//! Models that cannot be loaded.

use parapet_config::repository::RepositoryError;

/// A model that cannot be loaded, in one line; stops start-up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The file, the problem and the fix.
    #[error("{0}")]
    Unusable(String),
}
