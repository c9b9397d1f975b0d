//! `cluster up`.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{ChildStdin, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{LAST, LeadingArgs, Programs, Serving, Stop, processors};
use crate::roles::{ClusterError, Result, coordinate};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Server processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    servers: u16,
    /// Worker processes [default: 2 where there is a program for them]
    #[arg(long)]
    workers: Option<usize>,
    /// Servers that hold each range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Where the registry is served
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
}

pub(super) async fn run(args: &Args, programs: &Programs, stop: Stop) -> Result<()> {
    let own = std::env::current_exe().map_err(ClusterError::Runtime)?;
    let default = if programs.worker.is_some() { 2 } else { 0 };
    let workers = args.workers.unwrap_or(default);
    if programs.worker.is_none() && workers > 0 {
        let text = "this program has no workers: start them by `parity-trainer cluster up`, or \
            leave --workers out";
        return Err(ClusterError::Failed(text.to_owned()));
    }
    let serving = Serving::start(&args.listen).await?;
    let leading = LeadingArgs {
        replicas: args.replicas,
        min_servers: args.servers,
        rebalance: 2,
        heartbeat: 100,
    };
    let ended = CancellationToken::new();
    let (registry, ends) = (serving.registry.clone(), ended.clone().cancelled_owned());
    let coordinating =
        tokio::spawn(async move { coordinate(&registry, leading.config(), ends).await });
    let address = serving.address.to_string();
    let mut children = Children::default();
    let server = programs.server.as_deref().unwrap_or(&own);
    let (replicas, servers) = (args.replicas.to_string(), args.servers.to_string());
    for number in 1..=args.servers.into() {
        let mut command = Command::new(server);
        command.args(["server", "--replicas", &replicas, "--min-servers", &servers]);
        children.start(command, "server", number, &address)?;
    }
    let share = (processors() / workers.max(1)).max(1).to_string();
    let threads = programs.threads.map(|threads| threads.to_string());
    let threads = threads.unwrap_or(share);
    let worker = programs.worker.as_deref().unwrap_or(&own);
    for number in 1..=workers {
        let mut command = Command::new(worker);
        command.args(["--threads", &threads, "worker"]);
        children.start(command, "worker", number, &address)?;
    }
    eprintln!(
        "cluster: {servers} servers and {workers} workers, registry {address}; Ctrl-C ends it"
    );
    let outcome = children.watch(stop.asked()).await;
    children.end().await;
    ended.cancel();
    let _ = timeout(LAST, coordinating).await;
    outcome
}

struct Process {
    name: String,
    is_worker: bool,
    pid: u32,
    /// Closed when this process ends, however it does; the child notices.
    _input: Option<ChildStdin>,
}

#[derive(Default)]
struct Children {
    processes: Vec<Process>,
    ends: JoinSet<(u32, std::io::Result<ExitStatus>)>,
}

impl Children {
    fn start(
        &mut self,
        mut command: Command,
        role: &str,
        number: usize,
        registry: &str,
    ) -> Result<()> {
        // In its own group, so Ctrl-C reaches this process alone, which then ends them in order.
        let started = command
            .args(["--attached", "--registry", registry])
            .stdin(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = started.map_err(|error| {
            let program = Path::new(command.as_std().get_program()).display();
            let fix = "check that it is there and may be run";
            ClusterError::Failed(format!("{program} cannot be started ({error}): {fix}"))
        })?;
        let pid = child.id().unwrap_or_default();
        self.processes.push(Process {
            name: format!("{role} process {number} (pid {pid})"),
            is_worker: role == "worker",
            pid,
            _input: child.stdin.take(),
        });
        self.ends.spawn(async move { (pid, child.wait().await) });
        Ok(())
    }

    /// Names processes that end, until `stop` or no server is left.
    async fn watch(&mut self, stop: impl Future<Output = ()>) -> Result<()> {
        tokio::pin!(stop);
        loop {
            let (ended, status) = tokio::select! {
                () = &mut stop => return Ok(()),
                Some(Ok(ended)) = self.ends.join_next() => ended,
            };
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let processes = &mut self.processes;
            for process in processes.extract_if(.., |process| process.pid == ended) {
                let name = process.name;
                eprintln!("warning: {name} ended ({status}); it is not started again");
            }
            if processes.iter().all(|process| process.is_worker) {
                let text = "all servers have ended: start the cluster again; a run with --resume \
                    goes on from its checkpoint";
                return Err(ClusterError::Failed(text.to_owned()));
            }
        }
    }

    /// Asks all to end, workers first, then ends them.
    async fn end(&mut self) {
        self.processes.sort_by_key(|process| !process.is_worker);
        for process in &self.processes {
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
