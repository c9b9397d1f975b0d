//! One run at a time in a folder.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use super::unwritten;
use crate::{Result, TrainError};

/// Takes the lock `path`, which is made with the folders around it, until the file that is returned
/// is dropped. The system lets go of it when the process ends, however it ends: the file stays, and
/// says nothing by itself. `place` is what is worked at, and `flag` what names another one.
pub fn lock(path: &Path, place: &Path, flag: &str) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(unwritten(path))?;
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path).map_err(unwritten(path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(source)) => return Err(unwritten(path)(source)),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder's process helps, but is not needed.
            let _ = file.read_to_string(&mut holder);
            let holder = holder.trim().parse::<u32>();
            let holder = holder.map_or_else(|_| String::new(), |id| format!(" (process {id})"));
            let problem = format!(
                "another run{holder} is at work there; wait for its end, or name another folder \
                 with --{flag}"
            );
            return Err(TrainError::input(place, problem));
        }
    }
    // A full disk is told of by what needs it.
    let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_refused_until_its_holder_drops_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs/one.lock");
        let take = || lock(&file, Path::new("runs/one"), "run");
        let held = take().unwrap();
        let message = take().unwrap_err().to_string();
        let own = std::process::id();
        let refused = format!(
            "runs/one: another run (process {own}) is at work there; wait for its end, or name \
             another folder with --run"
        );
        assert_eq!(message, refused);
        drop(held);
        assert!(file.is_file());
        drop(take().unwrap());
    }
}
