//! Instances and frontends that a benchmark starts from the optimised binaries.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::demo::binary;
use crate::models;
use crate::resources::pinned;

/// Time that a process may take to say that it is ready.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Processes that end with this value; what they log lies in its folder.
pub(super) struct Servers {
    children: Vec<Child>,
    folder: PathBuf,
}

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// host:port
    pub(super) authority: String,
    pub(super) pid: u32,
}

impl Servers {
    /// None yet.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self {
            children: Vec::new(),
            folder: folder.to_owned(),
        })
    }

    /// An instance of `model`, on a port of its own.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn instance(
        &mut self,
        name: &str,
        model: &str,
        arguments: &[&str],
    ) -> Result<Server> {
        let mut command = Command::new(binary("parapet-instance"));
        command.arg("--repository").arg(models::repository());
        command
            .args(["--model", model, "--listen", "127.0.0.1:0"])
            .args(arguments);
        self.spawn(command, name)
    }

    /// A frontend of the models in the repository with this configuration besides, on a port of its
    /// own, and on one core if that is said.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn frontend(
        &mut self,
        name: &str,
        config: &str,
        core: Option<usize>,
    ) -> Result<Server> {
        let path = self.folder.join(format!("{name}.toml"));
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[repository]\npath = {:?}\n{config}",
            models::repository()
        );
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = pinned(binary("parapet-frontend"), core);
        command.arg("--config").arg(path);
        self.spawn(command, name)
    }

    /// Waits for the line that says where it listens.
    fn spawn(&mut self, mut command: Command, name: &str) -> Result<Server> {
        let log = self.folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let (output, pid) = (child.stdout.take(), child.id());
        self.children.push(child);
        let (ready, said) = mpsc::channel();
        std::thread::spawn(move || {
            let first = output.and_then(|output| BufReader::new(output).lines().next()?.ok());
            let _ = ready.send(first);
        });
        let line = said
            .recv_timeout(START_LIMIT)
            .ok()
            .flatten()
            .unwrap_or_default();
        match line
            .split_once("http://")
            .map(|(_, rest)| rest.split(' ').next().unwrap_or(rest))
        {
            Some(authority) => Ok(Server {
                authority: authority.to_owned(),
                pid,
            }),
            None => bail!("{name} did not start; see {}", log.display()),
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
