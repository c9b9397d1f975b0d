//! Files that are whole or not there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes `parts` to `path`: aside, on disk for good, then renamed. A reader finds the old file or
/// the new one, after a crash too; when writing fails, the old one is untouched.
pub fn write_aside(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".partial");
    let write = || {
        let mut file = File::create(&aside)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_all()?;
        fs::rename(&aside, path)?;
        match path.parent() {
            Some(folder) if folder != Path::new("") => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    };
    write().inspect_err(|_| drop(fs::remove_file(&aside)))
}
