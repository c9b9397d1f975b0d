//! Instances and frontends that a benchmark starts from the optimised binaries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::demo::binary;
use crate::resources::pinned;
use crate::{models, processes, workspace};

/// Servers that end with this value, with their logs in its folder.
pub(super) struct Servers {
    running: processes::Servers,
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
    pub(super) fn new(folder: &Path) -> Result<Self> {
        workspace::make_folder(folder)?;
        Ok(Self {
            running: processes::Servers::default(),
            folder: folder.to_owned(),
        })
    }

    /// An instance of `model`, on a port of its own.
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
        workspace::write(&path, text)?;
        let mut command = pinned(binary("parapet-frontend"), core);
        command.arg("--config").arg(path);
        self.spawn(command, name)
    }

    fn spawn(&mut self, command: Command, name: &str) -> Result<Server> {
        let log = self.folder.join(format!("{name}.log"));
        let line = self.running.start(command, name, &log)?;
        let (_, address) = line
            .split_once("http://")
            .with_context(|| format!("{name} logs no address but {line:?}"))?;
        Ok(Server {
            authority: address.split(' ').next().unwrap_or(address).to_owned(),
            pid: self.running.last_pid(),
        })
    }
}
