//! One run at a time in a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::RunError;

/// A lock file that is held until it is dropped. The system lets go of it when the process ends,
/// however it ends: the file stays, and says nothing by itself.
#[derive(Debug)]
#[must_use = "it is held until it is dropped"]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock `file`, which is made with the folders around it; `place` is what is worked
    /// at, and `flag` what names another one.
    ///
    /// # Errors
    /// If another process holds it, or the file cannot be written.
    pub fn take(file: &Path, place: &Path, flag: &'static str) -> Result<Self, RunError> {
        let failed = |source| RunError::Write {
            path: file.to_path_buf(),
            source,
        };
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(file);
        let mut lock = options.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who it is helps, but is not needed.
                let _ = lock.read_to_string(&mut holder);
                let holder = holder.trim().parse().ok();
                return Err(RunError::Busy {
                    path: place.to_path_buf(),
                    holder,
                    flag,
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // A full disk is told of by what needs it.
        let _ = lock
            .set_len(0)
            .and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(Self { _file: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_the_next_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs/one.lock");
        let take = || Lock::take(&file, Path::new("runs/one"), "run");
        let held = take().unwrap();
        let message = take().unwrap_err().to_string();
        let own = std::process::id();
        assert!(
            message.contains(&format!("runs/one: another run (process {own}) is at work")),
            "{message}"
        );
        assert!(
            message.contains("--run") && !message.contains('\n'),
            "{message}"
        );
        drop(held);
        assert!(file.is_file());
        drop(take().unwrap());
    }
}
