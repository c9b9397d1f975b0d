//! Processes of a cluster that a step starts, watches and ends, and what they leave in files.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workspace;

/// Nothing takes longer, but for a training.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The program, and the folder in which everything of a run lies.
pub(crate) struct Place {
    pub(crate) trainer: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Place {
    /// An empty folder of this name, in the checkout.
    pub(crate) fn new(folder: &str) -> Result<Self> {
        let folder = workspace::root().join(folder);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self {
            trainer: workspace::target().join("debug/parity-trainer"),
            folder,
        })
    }

    /// Runs `command` to its end; what it says goes to a file.
    pub(crate) fn finish(&self, command: Command, name: &str) -> Result<()> {
        let mut processes = Processes::default();
        processes.start(self, command, name)?;
        processes.wait()
    }

    /// Asks again and again.
    pub(crate) fn wait<T>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let since = Instant::now();
        loop {
            if let Some(found) = ask()? {
                return Ok(found);
            }
            ensure!(
                since.elapsed() < LIMIT,
                "no {what} after {LIMIT:?}; see {}",
                self.folder.display()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the number of steps that the training `name` reports.
    pub(crate) fn steps(&self, name: &str) -> Option<u64> {
        let log = fs::read_to_string(
            self.folder
                .join("models/.runs")
                .join(name)
                .join("log.jsonl"),
        )
        .ok()?;
        let line: serde_json::Value = log
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok())?;
        line["step"].as_u64()
    }
}

/// Processes that end with this one, with files for what they say.
#[derive(Default)]
pub(crate) struct Processes(Vec<(PathBuf, Child)>);

impl Processes {
    pub(crate) fn start(&mut self, place: &Place, mut command: Command, name: &str) -> Result<()> {
        let path = place.folder.join(format!("{name}.log"));
        let log =
            fs::File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let errors = log.try_clone().context("cannot share a file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        self.0.push((
            path,
            child.with_context(|| format!("cannot start {:?}", command.get_program()))?,
        ));
        Ok(())
    }

    pub(crate) fn none_ended(&mut self) -> Result<()> {
        for (log, child) in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                bail!("ended too soon ({status}); see {}", log.display());
            }
        }
        Ok(())
    }

    /// Asks the process of this name to end, and waits until it has.
    pub(crate) fn end(&mut self, place: &Place, name: &str) -> Result<()> {
        let log = place.folder.join(format!("{name}.log"));
        let found = self.0.iter().position(|(path, _)| *path == log);
        let (_, child) = &mut self.0[found.with_context(|| format!("no process {name}"))?];
        kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)
            .context("cannot end a process")?;
        let status = place.wait("end of a process", || Ok(child.try_wait()?))?;
        ensure!(status.success(), "failed ({status}); see {}", log.display());
        Ok(())
    }

    pub(crate) fn wait(&mut self) -> Result<()> {
        for (log, child) in &mut self.0 {
            let status = child.wait()?;
            ensure!(status.success(), "failed ({status}); see {}", log.display());
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
