//! Files that are written: whole, or not at all.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};
use parapet_loadgen::report;
use parapet_loadgen::run::Recording;
use serde::Serialize;

/// Returns true if a file can be written there, as far as can be told before.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(
        folder_of(path).is_dir(),
        "{shown}: its folder does not exist; make it first"
    );
    ensure!(
        !path.is_dir(),
        "{shown}: is a folder; give the path of a file"
    );
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Writes under another name first: a file of that name is whole.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let whole = || {
        // Devices and pipes are written to, not replaced.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let mut out = BufWriter::new(std::fs::File::options().write(true).open(path)?);
            write(&mut out)?;
            return out.flush();
        }
        let mut out = BufWriter::new(std::fs::File::create(&part)?);
        write(&mut out)?;
        out.flush()?;
        std::fs::rename(&part, path)
    };
    let written = whole().inspect_err(|_| drop(std::fs::remove_file(&part)));
    written.with_context(|| format!("{}: cannot write it", path.display()))
}

pub(crate) fn write_json(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    write_file(path, |out| {
        serde_json::to_writer_pretty(&mut *out, report)?;
        writeln!(out)
    })
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportFiles {
    /// Write the report as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report with plots as one HTML file
    #[arg(long)]
    pub(crate) html: Option<PathBuf>,
}

impl ReportFiles {
    /// Returns an error if a file cannot be written, as far as can be told before.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut paths = [&self.json, &self.html].into_iter().flatten();
        paths.try_for_each(|path| check_writable(path))
    }

    pub(crate) fn write(
        &self,
        report: &impl Serialize,
        page: impl FnOnce() -> Option<String>,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.json {
            write_json(path, report)?;
        }
        if let Some(path) = &self.html
            && let Some(page) = page()
        {
            write_file(path, |out| out.write_all(page.as_bytes()))?;
        }
        Ok(())
    }
}

/// Writes the files of one recording whose path is given.
pub(crate) fn write_recording(
    [csv, hgrm, hlog]: [Option<&Path>; 3],
    recording: &Recording,
    started: SystemTime,
) -> anyhow::Result<()> {
    if let Some(path) = csv {
        write_file(path, |out| report::write_csv(out, &recording.records))?;
    }
    if let Some(path) = hgrm {
        let latency = report::latency_histogram(&recording.records);
        write_file(path, |out| report::write_hgrm(out, &latency))?;
    }
    if let Some(path) = hlog {
        write_file(path, |out| report::write_hlog(out, recording, started))?;
    }
    Ok(())
}

/// Folders for recordings of each of several strategies.
#[derive(Debug, clap::Args)]
pub(crate) struct Recordings {
    /// Folder for a CSV file of each strategy, with a line for each request
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Folder for each strategy's latency distribution in HdrHistogram's text form
    #[arg(long, value_name = "DIR")]
    hgrm: Option<PathBuf>,
    /// Folder for an HdrHistogram interval log of each strategy
    #[arg(long, value_name = "DIR")]
    hlog: Option<PathBuf>,
}

impl Recordings {
    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.csv, &self.hgrm, &self.hlog].into_iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folders().next().is_none()
    }

    /// Returns an error if one of them cannot be written, as far as can be told before. The folders
    /// themselves are made in the end.
    pub(crate) fn check<'a>(
        &self,
        strategies: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        for folder in self.folders() {
            ensure!(
                folder.is_dir() || (!folder.exists() && folder_of(folder).is_dir()),
                "{}: cannot be a folder; give one, or a name in one that exists",
                folder.display()
            );
        }
        let mut names: BTreeMap<String, &str> = BTreeMap::new();
        for strategy in strategies {
            let name = file_name(strategy);
            if let Some(other) = names.insert(name.clone(), strategy) {
                bail!(
                    "strategies {other:?} and {strategy:?} would both be written to {name}; \
                     rename one"
                );
            }
        }
        Ok(())
    }

    pub(crate) fn write(
        &self,
        strategy: &str,
        recording: &Recording,
        started: SystemTime,
    ) -> anyhow::Result<()> {
        for folder in self.folders() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
        }
        let name = file_name(strategy);
        let file = |folder: &Option<PathBuf>, extension: &str| {
            let folder = folder.as_ref()?;
            Some(folder.join(format!("{name}.{extension}")))
        };
        let files = [
            file(&self.csv, "csv"),
            file(&self.hgrm, "hgrm"),
            file(&self.hlog, "hlog"),
        ];
        write_recording(files.each_ref().map(Option::as_deref), recording, started)
    }
}

/// A strategy's name with only such characters as are plain in names of files everywhere.
fn file_name(strategy: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.' | '=');
    strategy.replace(|char| !plain(char), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain_and_differ() {
        assert_eq!(file_name("coded:k=3:r=1"), "coded_k=3_r=1");
        assert_eq!(file_name("../größe"), ".._gr__e");
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, strategies: [&str; 2]| {
            let recordings = Recordings {
                csv: Some(folder.path().join(name)),
                hgrm: None,
                hlog: None,
            };
            recordings
                .check(strategies.into_iter())
                .map_err(|error| error.to_string())
        };
        assert_eq!(check("new", ["a:b", "a_c"]), Ok(()));
        let error = check("new", ["a:b", "a_b"]).unwrap_err();
        assert!(error.contains("\"a:b\" and \"a_b\" would both"), "{error}");
        assert!(check("missing/new", ["a", "b"]).is_err());
    }

    #[test]
    fn a_file_that_fails_half_way_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        let half = write_file(&path, |out| {
            out.write_all(b"half")?;
            Err(std::io::Error::other("no more"))
        });
        assert!(half.is_err() && std::fs::read_dir(folder.path()).unwrap().next().is_none());
        write_file(&path, |out| out.write_all(b"whole")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    }
}
