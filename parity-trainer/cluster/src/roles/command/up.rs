//! `cluster up`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use crate::registry::{Address, Registry};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::coordinator::ServedRegistry;
use super::server::LeadingArgs;
use super::stop::{LAST, Stop};
use super::{CommandError, Programs};
use crate::roles::coordinate;

/// Arguments of `cluster up`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Server processes
    #[arg(long, default_value = "2")]
    servers: NonZeroUsize,
    /// Worker processes [default: 2 where there is a program for them]
    #[arg(long)]
    workers: Option<usize>,
    /// Servers that hold each range
    #[arg(long, default_value = "2")]
    replicas: NonZeroUsize,
    /// Where the registry is served
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
    /// Use this registry in etcd, and serve none: `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`
    #[arg(long, value_name = "ADDRESS")]
    registry: Option<Address>,
}

/// A process of the cluster.
struct Process {
    name: String,
    pid: u32,
    /// Closed when this process ends, however it does; the child notices.
    _input: Option<ChildStdin>,
}

pub(super) async fn run(args: &Args, programs: &Programs) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let own = std::env::current_exe().map_err(CommandError::Runtime)?;
    let workers = args
        .workers
        .unwrap_or(if programs.worker.is_some() { 2 } else { 0 });
    let worker_program = match &programs.worker {
        Some(program) => program,
        None if workers == 0 => &own,
        None => return Err(CommandError::NoWorkers),
    };
    let mut served = None;
    let (registry, address): (Registry, String) = match &args.registry {
        Some(address) => (address.open().await?, address.to_string()),
        None => {
            let served = served.insert(ServedRegistry::start(&args.listen).await?);
            (served.registry.clone(), served.address.clone())
        }
    };
    let leading = LeadingArgs::new(args.replicas, args.servers).config();
    let (end_leading, leading_ends) = oneshot::channel::<()>();
    let coordinating = tokio::spawn({
        let registry = registry.clone();
        async move {
            let ended = async {
                let _ = leading_ends.await;
            };
            coordinate(&registry, leading, ended).await
        }
    });

    let server_program = programs.server.as_deref().unwrap_or(&own);
    let replicas = args.replicas.to_string();
    let min_servers = args.servers.to_string();
    let mut children = Children::default();
    for number in 1..=args.servers.get() {
        let rest = ["--replicas", &replicas, "--min-servers", &min_servers];
        children.start(server_program, &["server"], number, &address, &rest)?;
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = processors / workers.max(1);
    let threads = programs
        .threads
        .map_or_else(|| share.max(1).to_string(), |threads| threads.to_string());
    for number in 1..=workers {
        children.start(
            worker_program,
            &["--threads", &threads, "worker"],
            number,
            &address,
            &[],
        )?;
    }
    eprintln!(
        "cluster: {} servers and {workers} workers, registry {address}; Ctrl-C ends it",
        args.servers
    );
    let outcome = children.watch(stop.asked()).await;
    children.end().await;
    let _ = end_leading.send(());
    let _ = timeout(LAST, coordinating).await;
    outcome
}

#[derive(Default)]
struct Children {
    processes: Vec<Process>,
    ends: JoinSet<(u32, std::io::Result<ExitStatus>)>,
}

impl Children {
    fn start(
        &mut self,
        program: &Path,
        role: &[&str],
        number: usize,
        registry: &str,
        rest: &[&str],
    ) -> Result<(), CommandError> {
        let mut command = Command::new(program);
        command
            .args(role)
            .args(["--attached", "--registry", registry])
            .args(rest);
        // In a group of its own, so that Ctrl-C reaches this process alone, which then ends them in
        // order.
        command
            .stdin(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let failed = |source| CommandError::Spawn {
            program: PathBuf::from(program),
            source,
        };
        let mut child: Child = command.spawn().map_err(failed)?;
        let pid = child.id().unwrap_or_default();
        let role = role.last().copied().unwrap_or_default();
        let name = format!("{role} process {number} (pid {pid})");
        self.processes.push(Process {
            name,
            pid,
            _input: child.stdin.take(),
        });
        self.ends.spawn(async move { (pid, child.wait().await) });
        Ok(())
    }

    /// Names processes that end, until `stop` or no server is left.
    async fn watch(&mut self, stop: impl Future<Output = ()>) -> Result<(), CommandError> {
        tokio::pin!(stop);
        loop {
            let (pid, status) = tokio::select! {
                () = &mut stop => return Ok(()),
                Some(Ok(ended)) = self.ends.join_next() => ended,
            };
            let place = self.processes.iter().position(|process| process.pid == pid);
            let Some(process) = place.map(|place| self.processes.remove(place)) else {
                continue;
            };
            let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            eprintln!(
                "warning: {} ended ({how}); it is not started again",
                process.name
            );
            if !self
                .processes
                .iter()
                .any(|process| process.name.starts_with("server"))
            {
                return Err(CommandError::NoServers);
            }
        }
    }

    /// Asks all to end, then ends them.
    async fn end(&mut self) {
        let is_worker = |process: &&Process| process.name.starts_with("worker");
        let (workers, servers): (Vec<_>, Vec<_>) = self.processes.iter().partition(is_worker);
        for process in workers.into_iter().chain(servers) {
            // One that has ended this very moment is not there any longer, and nothing happens.
            if let Ok(pid) = i32::try_from(process.pid) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        let all = async { while self.ends.join_next().await.is_some() {} };
        if timeout(LAST, all).await.is_err() {
            eprintln!("warning: not all processes have ended in {LAST:?}; they are killed");
        }
        self.ends.shutdown().await;
    }
}
