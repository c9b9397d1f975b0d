//! What can go wrong with files.

use std::error::Error;
use std::io;

use crate::CutError;

/// Why a checkpoint could not be written or read. Those that were there before stay.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// No room.
    #[error("the disk is full: {path} could not be written: free some space, or keep fewer checkpoints")]
    Full {
        /// What was written.
        path: String,
    },
    /// The store refused, or could not be reached.
    #[error("{path} could not be {done}: {cause}: check the place, its rights and the connection")]
    Store {
        /// What.
        path: String,
        /// Written, read, looked at, listed or removed.
        done: &'static str,
        /// What the store says.
        cause: String,
    },
    /// A file is not what its manifest says, or is no checkpoint's file at all.
    #[error("{path} is damaged ({cause}): restore another checkpoint")]
    Damaged {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A file that was written is not there.
    #[error(
        "{path} is not where a server has written it ({cause}): give all servers, and the command, one place that they share"
    )]
    NotShared {
        /// The file.
        path: String,
        /// What was found.
        cause: String,
    },
    /// A place that cannot be used.
    #[error(
        "`{given}` is no place for checkpoints ({cause}): give a folder, or a URL such as `s3://bucket/folder`"
    )]
    Place {
        /// The setting.
        given: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The shards are not of one moment.
    #[error(transparent)]
    Cut(#[from] CutError),
}

impl CheckpointError {
    pub(crate) fn damaged(path: &impl ToString, cause: impl ToString) -> Self {
        Self::Damaged { path: path.to_string(), cause: cause.to_string() }
    }

    pub(crate) fn store(path: &impl ToString, done: &'static str, error: &object_store::Error) -> Self {
        let path = path.to_string();
        let mut source: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(inner) = source {
            let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
            if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
                return Self::Full { path };
            }
            source = inner.source();
        }
        // One line, whatever a cloud answers.
        let cause = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Store { path, done, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let failure = |kind: io::ErrorKind| object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(object_store::Error::Generic {
                store: "below",
                source: Box::new(io::Error::from(kind)),
            }),
        };
        let full = CheckpointError::store(&"a/b", "written", &failure(io::ErrorKind::StorageFull));
        assert!(matches!(&full, CheckpointError::Full { path } if path == "a/b"), "{full}");
        let other = CheckpointError::store(&"a/b", "written", &failure(io::ErrorKind::PermissionDenied));
        assert!(matches!(other, CheckpointError::Store { done: "written", .. }), "{other}");
    }
}
