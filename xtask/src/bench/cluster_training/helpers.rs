//! Servers and workers beside the process that leads a training.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Shape;

/// Two servers, and the workers besides the one that will lead, of one thread each. They
/// end with this.
pub(super) struct HelperProcesses {
    process: Child,
    pub(super) registry: String,
}

impl HelperProcesses {
    pub(super) fn up(trainer: &Path, shape: Shape, log: &Path) -> Result<Self> {
        let mut command = Command::new(trainer);
        let workers = (shape.workers - 1).to_string();
        command.args(["--threads", "1", "cluster", "up", "--workers", &workers]);
        command
            .args(["--servers", "2", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = command
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a cluster")?;
        let errors = process.stderr.take().context("the cluster says nothing")?;
        let mut cluster = Self {
            process,
            registry: String::new(),
        };
        let mut lines = BufReader::new(errors).lines();
        for line in lines.by_ref() {
            if let Some((_, rest)) = line?.split_once("registry ") {
                rest.split(';')
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut cluster.registry);
                break;
            }
        }
        ensure!(!cluster.registry.is_empty(), "the cluster did not start");
        let mut file =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes());
            }
        });
        Ok(cluster)
    }
}

impl Drop for HelperProcesses {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}
