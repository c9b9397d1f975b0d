//! Processes of an experiment's cluster on this machine; all of them end with their owner.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use crate::experiment::Experiment;

const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Places {
    pub programs: PathBuf,
    pub repository: PathBuf,
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
        let file = file.with_context(|| format!("{}: cannot write it", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(file).spawn().with_context(|| {
            let program = Path::new(command.get_program()).display();
            format!("cannot start {program}; build it, or install it beside parapet-loadgen")
        })?;
        let address = String::new();
        let mut process = Self { child, address };
        let stdout = process.child.stdout.take();
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(START_LIMIT).unwrap_or_default();
        let Some((_, address)) = line.rsplit_once("http://") else {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let reason = said.lines().last().unwrap_or("it said nothing");
            let log = log.display();
            bail!("{name} did not become ready: {reason}; its log is {log}");
        };
        process.address = address.trim().to_owned();
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

#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) places: Places,
    models: String,
    epoch_unix_ms: u128,
    pub(super) instances: Vec<Process>,
}

impl Fleet {
    pub(super) fn start(experiment: &Experiment, places: &Places) -> anyhow::Result<Self> {
        write_toml(&places.work.join("faults.toml"), &experiment.fault_profile())?;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut fleet = Self {
            places: places.clone(),
            models: experiment.models().join(","),
            epoch_unix_ms: epoch.unwrap_or_default().as_millis(),
            instances: Vec::new(),
        };
        for number in 0..experiment.instances.deployed + experiment.instances.redundant {
            fleet.instances.push(fleet.spawn(number, "127.0.0.1:0")?);
        }
        Ok(fleet)
    }

    fn spawn(&self, number: usize, listen: &str) -> anyhow::Result<Process> {
        let places = &self.places;
        let mut command = Command::new(places.programs.join("parapet-instance"));
        command.arg("--repository").arg(&places.repository);
        command.args(["--model", &self.models, "--listen", listen]);
        let profile = places.work.join("faults.toml");
        command.arg("--fault-profile").arg(profile);
        command.args(["--fault-instance", &number.to_string()]);
        command.args(["--fault-epoch-unix-ms", &self.epoch_unix_ms.to_string()]);
        Process::start(command, &format!("instance-{number}"), &places.work)
    }

    pub(super) fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(killed) = self.instances.get(number) {
            self.instances[number] = self.spawn(number, &killed.address)?;
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.instances.iter().map(|process| process.address.clone()).collect()
    }

    pub(super) fn frontend(
        &self,
        strategy: &str,
        configuration: &impl Serialize,
    ) -> anyhow::Result<Process> {
        let (places, name) = (&self.places, format!("frontend-{strategy}"));
        let path = places.work.join(format!("{name}.toml"));
        write_toml(&path, configuration)?;
        let mut command = Command::new(places.programs.join("parapet-frontend"));
        command.arg("--config").arg(&path);
        Process::start(command, &name, &places.work)
    }
}

fn write_toml(path: &Path, contents: &impl Serialize) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot write it", path.display());
    std::fs::write(path, toml::to_string(contents).with_context(cannot)?).with_context(cannot)
}
