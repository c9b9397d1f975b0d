//! Processes that end with this one.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Time that a process may take to say that it is ready; longer if the machine stands still, so
/// it is generous.
const START_LIMIT: Duration = Duration::from_secs(60);

/// An address of this machine's that no outgoing connection will take meanwhile: those are made
/// from 127.0.0.1.
pub fn own_address(last: u8) -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0))?.local_addr()
}

/// Starts it, and waits for the one line on its standard output, which says where it listens.
pub async fn start(command: &mut Command, log: &Path) -> Result<(Child, SocketAddr)> {
    let file = File::options().create(true).append(true).open(log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(file).kill_on_drop(true);
    let program = command.as_std().get_program().display().to_string();
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot start {program}"))?;
    let output = child.stdout.take().context("no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(START_LIMIT, lines.next_line()).await;
    let said = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
    let address = said.rsplit("http://").next().unwrap_or_default();
    let address = address.trim().parse().with_context(|| {
        let log = fs::read_to_string(log).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it said nothing");
        format!("{program} did not start: {last}")
    })?;
    Ok((child, address))
}

/// Sends it a signal, if it lives.
pub fn send(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id {
        let _gone = signal::kill(Pid::from_raw(id), signal);
    }
}

/// An instance, which can be killed and started again where it was.
#[derive(Debug)]
pub struct Instance {
    command: Command,
    log: PathBuf,
    pub address: SocketAddr,
    child: Option<Child>,
}

impl Instance {
    pub async fn start(mut command: Command, number: u8, folder: &Path) -> Result<Self> {
        let address = own_address(11 + number)?;
        command.arg("--listen").arg(address.to_string());
        let mut instance = Self {
            command,
            log: folder.join(format!("instance-{number}.log")),
            address,
            child: None,
        };
        instance.revive().await?;
        Ok(instance)
    }

    /// Starts it, if it is not running.
    pub async fn revive(&mut self) -> Result<()> {
        if self.child.is_none() {
            self.child = Some(start(&mut self.command, &self.log).await?.0);
        }
        Ok(())
    }

    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _gone = child.kill().await;
        }
    }

    /// Sends SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: Signal) {
        self.child.iter().for_each(|child| send(child, signal));
    }
}
