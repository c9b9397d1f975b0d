//! One run: its processes, from start to end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Load, Shape};
use crate::{resources, workspace};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub(super) enum System {
    /// Ours, as it is on one machine.
    Parapet,
    /// Ours, as it is between machines.
    OverTcp,
    /// mxnet's kvstore, run by this Python.
    Mxnet(PathBuf),
}

impl System {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Parapet => "Parapet",
            Self::OverTcp => "Parapet over TCP",
            Self::Mxnet(_) => "mxnet",
        }
    }
}

/// Seconds that the slowest worker took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seconds {
    pub(super) push: f64,
    pub(super) pull: f64,
    pub(super) both: f64,
}

/// A process that ends with its owner.
pub(super) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Result<(Self, ChildStdout)> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child =
            child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let stdout = child
            .stdout
            .take()
            .context("a child without its standard output")?;
        Ok((Self(child), stdout))
    }

    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.0.stdin.take()
    }

    /// The most bytes of memory that it has had.
    pub(super) fn highest_memory(&self) -> Result<u64> {
        Ok(resources::memory(self.0.id())?.highest)
    }

    /// Waits until it ends by itself.
    fn finish(&mut self, since: Instant) -> Result<()> {
        loop {
            match self.0.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("a process failed ({status})"),
                None if since.elapsed() > LIMIT => bail!("no end after {LIMIT:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// One run.
pub(super) fn measure(system: &System, shape: Shape, load: Load) -> Result<Seconds> {
    let since = Instant::now();
    let (servers, workers) = match system {
        System::Parapet => parapet(shape, load, &[])?,
        System::OverTcp => parapet(shape, load, &["--tcp"])?,
        System::Mxnet(python) => mxnet(python, shape, load)?,
    };
    let mut slowest = Seconds::default();
    for (mut worker, mut stdout) in workers {
        worker.finish(since)?;
        let mut text = String::new();
        stdout.read_to_string(&mut text)?;
        let last = text.lines().last().unwrap_or_default();
        let line: Value =
            serde_json::from_str(last).with_context(|| format!("not a result: \"{last}\""))?;
        let of = |phase: &str| {
            line[phase]
                .as_f64()
                .with_context(|| format!("no time for {phase}"))
        };
        slowest.push = slowest.push.max(of("push")?);
        slowest.pull = slowest.pull.max(of("pull")?);
        slowest.both = slowest.both.max(of("both")?);
    }
    drop(servers);
    Ok(slowest)
}

type Processes = (Vec<Process>, Vec<(Process, ChildStdout)>);

fn parapet(shape: Shape, load: Load, more: &[&str]) -> Result<Processes> {
    let program = workspace::target().join("release/examples/throughput");
    let command = |role: &str, id: u64| {
        let mut command = Command::new(&program);
        command.arg(role).arg(id.to_string());
        command.args([
            "--servers",
            &shape.servers.to_string(),
            "--workers",
            &shape.workers.to_string(),
        ]);
        command.args([
            "--bytes",
            &load.bytes.to_string(),
            "--keys",
            &load.keys.to_string(),
        ]);
        command.args(more);
        command
    };
    let (mut servers, mut addresses) = (Vec::new(), Vec::new());
    for node in 0..shape.servers {
        let (server, stdout) = Process::start(&mut command("server", node))?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address)?;
        addresses.extend(["--address".to_owned(), address.trim().to_owned()]);
        servers.push(server);
    }
    let worker = |id| {
        let mut worker = command("worker", id);
        Process::start(
            worker
                .args(["--rounds", &load.rounds.to_string()])
                .args(&addresses),
        )
    };
    let workers = (0..shape.workers).map(worker).collect::<Result<_>>()?;
    Ok((servers, workers))
}

fn mxnet(python: &PathBuf, shape: Shape, load: Load) -> Result<Processes> {
    let script = workspace::root().join("parity-trainer/parameter-server/benches/mxnet_kvstore.py");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let command = |role: &str| {
        let mut command = Command::new(python);
        command.arg(&script);
        command.args([
            "--bytes",
            &load.bytes.to_string(),
            "--keys",
            &load.keys.to_string(),
        ]);
        command.args(["--rounds", &load.rounds.to_string()]);
        command
            .env("DMLC_ROLE", role)
            .env("DMLC_PS_ROOT_URI", "127.0.0.1")
            .env("DMLC_NODE_HOST", "127.0.0.1");
        command.env("DMLC_PS_ROOT_PORT", port.to_string());
        command.env("DMLC_NUM_SERVER", shape.servers.to_string());
        command.env("DMLC_NUM_WORKER", shape.workers.to_string());
        Process::start(&mut command)
    };
    let mut others = vec![command("scheduler")?.0];
    for _ in 0..shape.servers {
        others.push(command("server")?.0);
    }
    let workers = (0..shape.workers)
        .map(|_| command("worker"))
        .collect::<Result<_>>()?;
    Ok((others, workers))
}
