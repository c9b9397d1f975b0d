//! Processes of an experiment's cluster on this machine; all of them end with their owner.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::experiment::Experiment;

/// Time that a process may take to say that it is ready.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Where programs, models and the run's own files are.
#[derive(Debug, Clone)]
pub struct Places {
    /// Folder of `parapet-instance` and `parapet-frontend`.
    pub programs: PathBuf,
    pub repository: PathBuf,
    /// A folder for configurations and logs.
    pub work: PathBuf,
}

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) address: String,
}

impl Process {
    /// Starts it and waits for the line that ends in its address.
    fn start(mut command: Command, name: &str, work: &Path) -> anyhow::Result<Self> {
        let log = work.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.map_err(|error| unwritable(&log, &error))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut child = command.spawn().map_err(|error| {
            let program = Path::new(command.get_program()).display();
            anyhow!("cannot start {program}: {error}; build it, or give its folder with --bin-dir")
        })?;
        let stdout = child.stdout.take();
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(START_LIMIT).unwrap_or_default();
        let address = line
            .rsplit_once("http://")
            .map(|(_, address)| address.trim().to_owned());
        let process = Self {
            child,
            address: address.clone().unwrap_or_default(),
        };
        if address.is_none() {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let reason = said.lines().last().unwrap_or("it said nothing");
            bail!(
                "{name} did not become ready: {reason}; its log is {}",
                log.display()
            );
        }
        Ok(process)
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // One that is gone needs no signal.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The instances and what they are started with.
#[derive(Debug)]
pub(super) struct Fleet {
    places: Places,
    models: String,
    profile: PathBuf,
    epoch_unix_ms: u64,
    pub(super) instances: Vec<Process>,
}

impl Fleet {
    /// Starts all instances of `experiment`, some at a time.
    pub(super) fn start(
        experiment: &Experiment,
        places: &Places,
        mut started: impl FnMut(usize, usize),
    ) -> anyhow::Result<Self> {
        let profile = places.work.join("faults.toml");
        let mut faults = experiment.faults.clone();
        faults.seed ^= experiment.seed;
        let text = toml::to_string(&faults).unwrap_or_default();
        write(&profile, &text)?;
        let epoch_unix_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or_default()
            });
        let models = experiment.models().join(",");
        let mut fleet = Self {
            places: places.clone(),
            models,
            profile,
            epoch_unix_ms,
            instances: Vec::new(),
        };
        let total = experiment.instances.deployed + experiment.instances.redundant;
        for number in 0..total {
            let instance = fleet.spawn(number, "127.0.0.1:0")?;
            fleet.instances.push(instance);
            started(number + 1, total);
        }
        Ok(fleet)
    }

    fn spawn(&self, number: usize, listen: &str) -> anyhow::Result<Process> {
        let mut command = Command::new(self.places.programs.join("parapet-instance"));
        command
            .arg("--repository")
            .arg(&self.places.repository)
            .args(["--model", &self.models, "--listen", listen])
            .arg("--fault-profile")
            .arg(&self.profile)
            .args(["--fault-instance", &number.to_string()])
            .args(["--fault-epoch-unix-ms", &self.epoch_unix_ms.to_string()]);
        Process::start(command, &format!("instance-{number}"), &self.places.work)
    }

    /// Starts a killed instance anew, at its old address.
    pub(super) fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        let Some(address) = self
            .instances
            .get(number)
            .map(|process| process.address.clone())
        else {
            return Ok(());
        };
        let process = self.spawn(number, &address)?;
        if let Some(slot) = self.instances.get_mut(number) {
            *slot = process;
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.instances
            .iter()
            .map(|process| process.address.clone())
            .collect()
    }

    /// Starts a frontend with this configuration.
    pub(super) fn frontend(
        &self,
        name: &str,
        configuration: &toml::Table,
    ) -> anyhow::Result<Process> {
        let path = self.places.work.join(format!("frontend-{name}.toml"));
        write(&path, &configuration.to_string())?;
        let mut command = Command::new(self.places.programs.join("parapet-frontend"));
        command.arg("--config").arg(&path);
        Process::start(command, &format!("frontend-{name}"), &self.places.work)
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    anyhow!("{}: cannot write it: {error}", path.display())
}
