//! Programs as processes that end with their owner.

use std::ffi::OsString;
use std::fs::{File, read_to_string};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for what a process still has to do when it is asked to end; then it is killed.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Path of one of Parapet's programs: beside this one, else on PATH.
pub(crate) fn find(program: &str) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe().ok().as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = beside.into_iter().chain(std::env::split_paths(&path));
    let found = folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()));
    let package = match program {
        "parapet-frontend" => "parapet-frontend",
        "parapet-loadgen" => "parapet-loadgen",
        "parapet-instance" => "parapet-models",
        _ => "parity-trainer",
    };
    found.with_context(|| {
        format!(
            "no {program} beside this program or on PATH; install it there, or build it: cargo \
             build --release -p {package}"
        )
    })
}

/// A server, started again under its address when it has ended.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    program: &'static str,
    flags: Vec<OsString>,
    logs: PathBuf,
    pub(crate) child: Child,
    /// HOST:PORT of its first listener.
    pub(crate) address: String,
}

impl Server {
    /// Starts it, with its log in `logs`, and waits until it says its address. `listen` comes
    /// behind `flags`, if given.
    pub(crate) async fn start(
        name: &str,
        program: &'static str,
        flags: Vec<OsString>,
        listen: Option<&str>,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = command(&find(program)?);
        command.args(&flags).stdout(Stdio::piped()).stderr(file);
        if let Some(listen) = listen {
            command.args(["--listen", listen]);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut line = String::new();
        if let Some(mut stdout) = child.stdout.take().map(BufReader::new) {
            let read = timeout(START_LIMIT, stdout.read_line(&mut line)).await;
            read.with_context(|| format!("{name} is not ready after {START_LIMIT:?}"))??;
        }
        let Some((_, address)) = line.split_once("http://") else {
            let said = read_to_string(&log).unwrap_or_default();
            let reason = said.lines().last().unwrap_or("it said nothing");
            bail!("{name} did not start: {reason} (its log is {})", log.display());
        };
        let address = address.split_whitespace().next().unwrap_or_default().to_owned();
        let (name, logs) = (name.to_owned(), logs.to_owned());
        Ok(Self { name, program, flags, logs, child, address })
    }

    /// Status that it ended with; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        let (flags, listen) = (self.flags.clone(), Some(self.address.as_str()));
        *self = Self::start(&self.name, self.program, flags, listen, &self.logs).await?;
        Ok(())
    }
}

/// Sends a signal; a process that has ended is left alone.
pub(crate) fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Ends a process, which may finish what it has begun.
pub(crate) async fn end(child: &mut Child) {
    signal(child, Signal::SIGTERM);
    if timeout(END_LIMIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// A command that Ctrl-C in a terminal does not reach, and that ends with its value.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null());
    command
}
