//! Errors of files and folders that programs are set up with.

use std::io;
use std::path::{Path, PathBuf};

/// A file or folder that cannot be used: one line that names it, the field and the fix. A retry is
/// of no use before it has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// File or folder.
    pub path: PathBuf,
    /// Field, problem and fix, in one line.
    pub problem: String,
}

impl FileError {
    /// An error of the file at `path`.
    pub fn new(path: &Path, problem: impl ToString) -> Self {
        let (path, problem) = (path.to_owned(), problem.to_string());
        Self { path, problem }
    }

    /// An error of `field` in the file at `path`.
    pub fn field(path: &Path, field: &str, problem: &str, fix: &str) -> Self {
        Self::new(path, format_args!("{field}: {problem}; {fix}"))
    }

    /// The system's refusal of `action`, as "read".
    pub fn io(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(path, format_args!("cannot {action}: {error}"))
    }
}
