//! Processes that end with this one.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
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
    TcpListener::bind((IpAddr::from(Ipv4Addr::new(127, 0, 0, last)), 0))?.local_addr()
}

/// Starts it, and waits for the one line on its standard output, which says where it listens.
pub async fn start(
    program: &Path,
    arguments: &[String],
    log: &Path,
) -> Result<(Child, SocketAddr)> {
    let open = || File::options().create(true).append(true).open(log);
    let file = open().with_context(|| format!("cannot write {}", log.display()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let output = child.stdout.take().context("no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let line = tokio::time::timeout(START_LIMIT, lines.next_line()).await;
    let said = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
    match said
        .rsplit("http://")
        .next()
        .and_then(|address| address.trim().parse().ok())
    {
        Some(address) => Ok((child, address)),
        None => {
            let log = fs::read_to_string(log).unwrap_or_default();
            bail!(
                "{} did not start: {}",
                program.display(),
                log.lines().last().unwrap_or("it said nothing")
            )
        }
    }
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
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    pub address: SocketAddr,
    child: Option<Child>,
}

impl Instance {
    pub async fn start(
        program: &Path,
        arguments: &[&str],
        number: u8,
        folder: &Path,
    ) -> Result<Self> {
        let address = own_address(11 + number)?;
        let mut arguments: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        arguments.extend(["--listen".to_owned(), address.to_string()]);
        let log = folder.join(format!("instance-{number}.log"));
        let mut instance = Self {
            program: program.to_owned(),
            arguments,
            log,
            address,
            child: None,
        };
        instance.revive().await?;
        Ok(instance)
    }

    /// Starts it, if it is not running.
    pub async fn revive(&mut self) -> Result<()> {
        if self.child.is_none() {
            self.child = Some(start(&self.program, &self.arguments, &self.log).await?.0);
        }
        Ok(())
    }

    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _gone = child.kill().await;
        }
    }

    /// SIGSTOP, or SIGCONT.
    pub fn freeze(&self, frozen: bool) {
        if let Some(child) = &self.child {
            send(
                child,
                if frozen {
                    Signal::SIGSTOP
                } else {
                    Signal::SIGCONT
                },
            );
        }
    }
}
