//! Files that are written: whole, or not at all.

use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use parapet_loadgen::run::{Record, RequestOutcome};
use serde::Serialize;

/// Returns true if a file can be written there, as far as can be told before.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(folder_of(path).is_dir(), "{shown}: its folder does not exist; make it first");
    ensure!(!path.is_dir(), "{shown}: is a folder; give the path of a file");
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
        [&self.json, &self.html].into_iter().flatten().try_for_each(|path| check_writable(path))
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

/// Writes a header and a line for each request. Fields without a value are empty; `status` is
/// `200`, `timeout`, `unsent`, `pending` (sent, and the run was ended), or the kind of failure.
pub(crate) fn write_csv(path: &Path, records: &[Record]) -> anyhow::Result<()> {
    write_file(path, |out| {
        writeln!(out, "request,planned_us,sent_us,done_us,status,provenance,correct,row")?;
        let mut lines = records.iter().enumerate();
        lines.try_for_each(|(request, record)| write_line(out, request, record))
    })
}

fn write_line(out: &mut dyn Write, request: usize, record: &Record) -> std::io::Result<()> {
    fn field(value: Option<impl Display>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let status = match record.outcome {
        Some(RequestOutcome::Answered(_)) => "200".to_owned(),
        Some(RequestOutcome::Failed(failure)) => failure.to_string(),
        Some(RequestOutcome::TimedOut) => "timeout".to_owned(),
        None if record.sent_us.is_some() => "pending".to_owned(),
        None => "unsent".to_owned(),
    };
    let (planned_us, sent) = (record.planned_us, record.sent_us);
    let provenance = field(record.answer().map(|answer| answer.provenance));
    let (correct, row) = (field(record.correct()), field(sent.map(|_| record.row)));
    let (sent, done) = (field(sent), field(record.done_us));
    writeln!(out, "{request},{planned_us},{sent},{done},{status},{provenance},{correct},{row}")
}

/// Returns an error if `folder` cannot be one, as far as can be told before it is made.
pub(crate) fn check_folder(folder: &Path) -> anyhow::Result<()> {
    ensure!(
        folder.is_dir() || (!folder.exists() && folder_of(folder).is_dir()),
        "{}: cannot be a folder; give one, or a name in one that exists",
        folder.display()
    );
    Ok(())
}

/// Writes the requests of one of several strategies to a CSV file of its name in `folder`.
pub(crate) fn write_strategy_csv(
    folder: &Path,
    strategy: &str,
    records: &[Record],
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    let name = strategy.replace('%', "%25").replace('/', "%2F");
    write_csv(&folder.join(format!("{name}.csv")), records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_stay_in_their_folder_and_differ() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("new");
        check_folder(&new).unwrap();
        for strategy in ["coded:k=3:r=1", "../größe", "..%2Fgröße"] {
            write_strategy_csv(&new, strategy, &[]).unwrap();
        }
        assert_eq!(std::fs::read_dir(&new).unwrap().count(), 3);
        assert!(new.join("coded:k=3:r=1.csv").is_file());
        assert!(check_folder(&folder.path().join("missing/new")).is_err());
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
