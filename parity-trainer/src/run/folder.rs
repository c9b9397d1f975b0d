//! The run's folder: checkpoints that are whole or not there, the log, the curve.

use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Checkpoint, CurveLabels, Lock, LogRecord, RunError, learning_curve};
use crate::files;

const KEPT: usize = 2;
const PREFIX: &str = "checkpoint-";
const END: &str = ".safetensors";
const CONFIG: &str = "config.toml";
const LOG: &str = "log.jsonl";
const LOCK: &str = "lock";
const REPLACED: &str = "replaced";
/// Suffix of a checkpoint that is not whole.
const TORN: &str = ".torn";
/// The first line of every `config.toml` of a run: how a folder is known to be one.
const MARK: &str = "# A run of parity-trainer: everything that it was given\n";

/// Where a run can go on.
#[derive(Debug)]
pub struct Found {
    /// The newest checkpoint that is whole; none if the run had not come so far.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that are not, each with what is wrong, to be told.
    pub skipped: Vec<RunError>,
}

/// The folder of one model's training.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder at `path`, there or not.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if a run was begun here.
    pub fn is_begun(&self) -> bool {
        self.path.join(CONFIG).is_file()
    }

    /// # Errors
    /// If no run was begun here.
    pub fn require(&self) -> Result<(), RunError> {
        if self.is_begun() {
            Ok(())
        } else {
            Err(RunError::NoRun {
                path: self.path.clone(),
            })
        }
    }

    /// Begins a run: makes the folder and puts the checkpoints of a run before it aside.
    ///
    /// # Errors
    /// If the folder cannot be written, or has another program's `config.toml`.
    pub fn begin(&self) -> Result<(), RunError> {
        self.refuse_others()?;
        fs::create_dir_all(&self.path).map_err(self.write_error(&self.path))?;
        let earlier = self.checkpoints()?;
        if !earlier.is_empty() {
            let aside = self.path.join(REPLACED);
            match fs::remove_dir_all(&aside) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(RunError::Write {
                        path: aside,
                        source,
                    });
                }
                _ => {}
            }
            fs::create_dir_all(&aside).map_err(self.write_error(&aside))?;
            for (step, path) in earlier {
                fs::rename(&path, aside.join(file_name(step))).map_err(self.write_error(&path))?;
            }
        }
        self.forget(LOG)
    }

    /// Keeps other runs out of the folder, which is made, as long as what it gives lives.
    ///
    /// # Errors
    /// If another run is at work there, or the folder is used for something else or
    /// cannot be written.
    pub fn lock(&self) -> Result<Lock, RunError> {
        self.refuse_others()?;
        Lock::take(&self.path.join(LOCK), &self.path, "run")
    }

    /// Refuses a folder with another program's `config.toml`.
    fn refuse_others(&self) -> Result<(), RunError> {
        let config = self.path.join(CONFIG);
        match fs::read(&config) {
            Ok(text) if !text.starts_with(MARK.as_bytes()) => Err(RunError::NotARun {
                path: self.path.clone(),
            }),
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(RunError::Read {
                path: config,
                source,
            }),
            _ => Ok(()),
        }
    }

    /// Puts a run aside, if there is one: it cannot be resumed.
    ///
    /// # Errors
    /// As [`begin`](Self::begin)'s.
    pub fn discard(&self) -> Result<(), RunError> {
        if !self.path.exists() {
            return Ok(());
        }
        self.begin()?;
        self.forget(CONFIG)
    }

    /// Removes a file of the run, there or not.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget(&self, name: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(RunError::Write { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Finds where a run of the digest `run` can go on.
    ///
    /// # Errors
    /// If there is no run, it is another one, or no checkpoint of it is whole.
    pub fn resume(&self, run: &str) -> Result<Found, RunError> {
        self.require()?;
        let checkpoints = self.checkpoints()?;
        let mut skipped = Vec::new();
        for (_, path) in checkpoints.iter().rev() {
            let contents = fs::read(path).map_err(|source| RunError::Read {
                path: path.clone(),
                source,
            })?;
            match Checkpoint::decode(&contents) {
                Ok(checkpoint) if checkpoint.run == run => {
                    self.put_aside(&skipped)?;
                    self.forget_after(checkpoint.state.backend.clock)?;
                    return Ok(Found {
                        checkpoint: Some(checkpoint),
                        skipped,
                    });
                }
                Ok(_) => return Err(RunError::OtherRun { path: path.clone() }),
                Err(problem) => skipped.push(RunError::Torn {
                    path: path.clone(),
                    problem,
                }),
            }
        }
        if skipped.is_empty() {
            self.forget_after(0)?;
            return Ok(Found {
                checkpoint: None,
                skipped,
            });
        }
        Err(RunError::AllTorn {
            path: self.path.clone(),
            count: skipped.len(),
        })
    }

    /// Refuses a folder whose newest whole checkpoint is of another run than `run`; one without
    /// checkpoints is none.
    ///
    /// # Errors
    /// If it is another run's, or cannot be read.
    pub fn require_run(&self, run: &str) -> Result<(), RunError> {
        let checkpoints = if self.path.is_dir() {
            self.checkpoints()?
        } else {
            Vec::new()
        };
        for (_, path) in checkpoints.into_iter().rev() {
            let contents = fs::read(&path).map_err(|source| RunError::Read {
                path: path.clone(),
                source,
            })?;
            match Checkpoint::decode(&contents) {
                Ok(checkpoint) if checkpoint.run == run => return Ok(()),
                Ok(_) => return Err(RunError::OtherRun { path }),
                // `resume` tells of it.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes a checkpoint, then removes those before the last two.
    ///
    /// # Errors
    /// If it cannot be written; no older one is touched then.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf, RunError> {
        let path = self.path.join(file_name(checkpoint.state.backend.clock));
        let contents = checkpoint.encode().map_err(|problem| RunError::Torn {
            path: path.clone(),
            problem,
        })?;
        files::write_aside(&path, &[&contents]).map_err(self.write_error(&path))?;
        let mut all = self.checkpoints()?;
        all.truncate(all.len().saturating_sub(KEPT));
        for (_, old) in all {
            fs::remove_file(&old).map_err(self.write_error(&old))?;
        }
        Ok(path)
    }

    /// Writes a file of the run, whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, contents: &str) -> Result<(), RunError> {
        let path = self.path.join(name);
        files::write_aside(&path, &[contents.as_bytes()]).map_err(self.write_error(&path))
    }

    /// Writes a TOML file of the run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_toml(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let failed = |error: toml::ser::Error| RunError::Write {
            path: self.path.join(name),
            source: std::io::Error::other(error),
        };
        self.write(name, &toml::to_string(value).map_err(failed)?)
    }

    /// Reads a TOML file of the run; nothing if it is not there or not what is expected.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RunError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(toml::from_str(&text).ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RunError::Read { path, source }),
        }
    }

    /// Writes all settings as `config.toml`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_config(&self, toml: &str) -> Result<(), RunError> {
        self.write(CONFIG, &format!("{MARK}{toml}"))
    }

    /// Where the best weights go.
    pub fn best_weights(&self) -> PathBuf {
        self.path.join(format!("best{END}"))
    }

    /// Adds a record to the log.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn log(&self, record: &LogRecord) -> Result<(), RunError> {
        let path = self.path.join(LOG);
        let failed = self.write_error(&path);
        let write = || {
            let mut line = serde_json::to_vec(record)?;
            line.push(b'\n');
            fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?
                .write_all(&line)
        };
        write().map_err(failed)
    }

    /// The log's records; a torn last line is not one.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn records(&self) -> Result<Vec<LogRecord>, RunError> {
        let path = self.path.join(LOG);
        let failed = |source| RunError::Read {
            path: path.clone(),
            source,
        };
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut records = Vec::new();
        for line in std::io::BufReader::new(file).lines() {
            if let Ok(record) = serde_json::from_str(&line.map_err(failed)?) {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// Draws the log as `curve.svg`.
    ///
    /// # Errors
    /// If it cannot be drawn or written.
    pub fn draw(&self, labels: &CurveLabels<'_>) -> Result<(), RunError> {
        let records = self.records()?;
        self.write("curve.svg", &learning_curve(labels, &records)?)
    }

    /// Renames checkpoints that are not whole, lest they count among the last two and a whole one
    /// go for them.
    fn put_aside(&self, skipped: &[RunError]) -> Result<(), RunError> {
        for torn in skipped {
            if let RunError::Torn { path, .. } = torn {
                let mut aside = path.clone().into_os_string();
                aside.push(TORN);
                fs::rename(path, &aside).map_err(self.write_error(path))?;
            }
        }
        Ok(())
    }

    /// Removes from the log what a resumed run will log again.
    fn forget_after(&self, step: u64) -> Result<(), RunError> {
        let mut text = String::new();
        for record in self.records()?.iter().filter(|record| record.step <= step) {
            if let Ok(line) = serde_json::to_string(record) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        self.write(LOG, &text)
    }

    /// Steps and files of the checkpoints, the oldest first.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>, RunError> {
        let failed = |source| RunError::Read {
            path: self.path.clone(),
            source,
        };
        let mut found = Vec::new();
        for item in fs::read_dir(&self.path).map_err(failed)? {
            let path = item.map_err(failed)?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let step = name
                .strip_prefix(PREFIX)
                .and_then(|name| name.strip_suffix(END));
            if let Some(step) = step.and_then(|step| step.parse().ok()) {
                found.push((step, path));
            }
        }
        found.sort();
        Ok(found)
    }

    fn write_error(&self, path: &Path) -> impl FnOnce(std::io::Error) -> RunError + use<> {
        let path = path.to_path_buf();
        |source| RunError::Write { path, source }
    }
}

fn file_name(step: u64) -> String {
    format!("{PREFIX}{step:09}{END}")
}

#[cfg(test)]
mod tests;
