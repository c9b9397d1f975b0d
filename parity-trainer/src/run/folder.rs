//! The run's folder: checkpoints that are whole or not there, the log, the curve.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::log::learning_curve;
use super::{Checkpoint, CurveLabels, LogRecord, lock, other_run, unwritten};
use crate::files::write_aside;
use crate::{Result, TrainError};

const KEPT: usize = 2;
const PREFIX: &str = "checkpoint-";
const END: &str = ".postcard";
const CONFIG: &str = "config.toml";
const LOG: &str = "log.jsonl";
const REPLACED: &str = "replaced";
/// The first line of every `config.toml` of a run: how a folder is known to be one.
const MARK: &str = "# A run of parity-trainer: everything that it was given\n";

/// Where a run can go on.
#[derive(Debug, Default)]
pub struct Found {
    /// The newest checkpoint that is whole; none if the run had not come so far.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that are not, each with what is wrong, to be told.
    pub skipped: Vec<(PathBuf, String)>,
}

/// The folder of one model's training, there or not.
#[derive(Debug, Clone)]
pub struct RunFolder(pub PathBuf);

impl RunFolder {
    pub fn is_begun(&self) -> bool {
        self.0.join(CONFIG).is_file()
    }

    pub fn require(&self) -> Result<()> {
        let problem =
            "no run to resume; leave --resume away to begin one, or name its folder with --run";
        ensure!(self.is_begun(), TrainError::input(&self.0, problem));
        Ok(())
    }

    /// Begins a run: makes the folder and puts the checkpoints of a run before it aside.
    pub fn begin(&self) -> Result<()> {
        self.refuse_others()?;
        fs::create_dir_all(&self.0).map_err(unwritten(&self.0))?;
        let earlier = self.checkpoints()?;
        if !earlier.is_empty() {
            let aside = self.0.join(REPLACED);
            if aside.exists() {
                fs::remove_dir_all(&aside).map_err(unwritten(&aside))?;
            }
            fs::create_dir_all(&aside).map_err(unwritten(&aside))?;
            for (step, path) in earlier {
                fs::rename(&path, aside.join(file_name(step))).map_err(unwritten(&path))?;
            }
        }
        self.forget(LOG)
    }

    /// Keeps other runs out of the folder, which is made, as long as the returned lock lives.
    pub fn lock(&self) -> Result<File> {
        self.refuse_others()?;
        lock(&self.0.join("lock"), &self.0, "run")
    }

    /// Refuses a folder with another program's `config.toml`.
    fn refuse_others(&self) -> Result<()> {
        match self.read(CONFIG)? {
            Some(text) if !text.starts_with(MARK) => {
                let problem = "holds another program's config.toml; name another folder with --run";
                Err(TrainError::input(&self.0, problem))
            }
            _ => Ok(()),
        }
    }

    /// Removes a file of the run, there or not.
    pub fn forget(&self, name: &str) -> Result<()> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome.map_err(unwritten(&path)),
        }
    }

    /// Finds where a run of the digest `run` can go on. The folder stays as it is.
    pub fn find(&self, run: &str) -> Result<Found> {
        let mut found = Found::default();
        for (_, path) in self.checkpoints()?.into_iter().rev() {
            match Checkpoint::decode(&fs::read(&path).map_err(TrainError::read(&path))?) {
                Ok(checkpoint) if checkpoint.run == run => {
                    found.checkpoint = Some(checkpoint);
                    return Ok(found);
                }
                Ok(_) => return Err(other_run(&path)),
                Err(problem) => found.skipped.push((path, problem)),
            }
        }
        Ok(found)
    }

    /// Makes a run ready to go on where [`find`](Self::find) says.
    pub fn resume(&self, run: &str) -> Result<Found> {
        self.require()?;
        let found = self.find(run)?;
        let skipped = found.skipped.len();
        let problem =
            format!("none of the {skipped} checkpoints is whole; begin again without --resume");
        ensure!(found.checkpoint.is_some() || skipped == 0, TrainError::input(&self.0, problem));
        // Checkpoints that are not whole are none of the last two: no whole one goes for them.
        for (path, _) in &found.skipped {
            fs::rename(path, path.with_extension("torn")).map_err(unwritten(path))?;
        }
        // A resumed run logs again what came after its checkpoint.
        let step = found.checkpoint.as_ref().map_or(0, |last| last.state.backend.clock);
        let mut records = self.records()?;
        records.retain(|record| record.step <= step);
        let lines: Vec<String> = records.iter().map(line).collect::<Result<_>>()?;
        self.write(LOG, &lines.concat())?;
        Ok(found)
    }

    /// Writes a checkpoint, then removes those before the last two; none if it cannot be written.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let path = self.0.join(file_name(checkpoint.state.backend.clock));
        let contents = checkpoint.encode().map_err(|problem| TrainError::input(&path, problem))?;
        write_aside(&path, &[&contents]).map_err(unwritten(&path))?;
        let all = self.checkpoints()?;
        let old = all.len().saturating_sub(KEPT);
        for (_, old) in all.iter().take(old) {
            fs::remove_file(old).map_err(unwritten(old))?;
        }
        Ok(path)
    }

    /// Writes a file of the run, whole or not at all.
    pub fn write(&self, name: &str, contents: &str) -> Result<()> {
        let path = self.0.join(name);
        write_aside(&path, &[contents.as_bytes()]).map_err(unwritten(&path))
    }

    pub fn write_toml(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let text = toml::to_string(value).map_err(std::io::Error::other);
        self.write(name, &text.map_err(unwritten(&self.0.join(name)))?)
    }

    /// Reads a file of the run; nothing if it is not there.
    fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(contents) => Ok(Some(String::from_utf8_lossy(&contents).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TrainError::read(&path)(error)),
        }
    }

    /// Reads a TOML file of the run; nothing if it is not there or not what is expected.
    pub fn read_toml<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        Ok(self.read(name)?.and_then(|text| toml::from_str(&text).ok()))
    }

    pub fn write_config(&self, toml: &str) -> Result<()> {
        self.write(CONFIG, &format!("{MARK}{toml}"))
    }

    pub fn best_weights(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    pub fn log(&self, record: &LogRecord) -> Result<()> {
        let path = self.0.join(LOG);
        let line = line(record)?;
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(unwritten(&path))
    }

    /// Returns the log's records; a torn last line is not one.
    pub fn records(&self) -> Result<Vec<LogRecord>> {
        let text = self.read(LOG)?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    pub fn draw(&self, labels: &CurveLabels<'_>) -> Result<()> {
        self.write("curve.svg", &learning_curve(labels, &self.records()?)?)
    }

    /// Steps and files of the checkpoints, the oldest first; none of a folder that is not there.
    fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>> {
        let items = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.map_err(TrainError::read(&self.0))?,
        };
        let mut found = Vec::new();
        for item in items {
            let path = item.map_err(TrainError::read(&self.0))?.path();
            if let Some(step) = step(&path) {
                found.push((step, path));
            }
        }
        found.sort();
        Ok(found)
    }
}

fn line(record: &LogRecord) -> Result<String> {
    let line = serde_json::to_string(record).map_err(std::io::Error::other);
    Ok(line.map_err(unwritten(Path::new(LOG)))? + "\n")
}

fn file_name(step: u64) -> String {
    format!("{PREFIX}{step:09}{END}")
}

fn step(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(END)?.parse().ok()
}

#[cfg(test)]
mod tests;
