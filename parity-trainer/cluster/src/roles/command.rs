//! The commands of processes: `server`, `coordinator`, `cluster` and `top`. Arguments in, a
//! process's life out.

mod server;
mod top;
mod up;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::registry::Address;
use crate::roles::{ClusterError, Result};

/// Time that a cluster's processes have for their own end.
const LAST: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Hold parameters: a parameter server
    Server(server::Args),
    /// Lead a cluster, and serve its registry if there is no etcd
    Coordinator(server::CoordinatorArgs),
    /// Run a whole cluster on this machine
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show nodes, ranges, staleness and bytes of a cluster
    Top(top::Args),
}

#[derive(Debug, clap::Subcommand)]
pub enum ClusterCommand {
    /// Start servers and workers as processes on this machine, and end them with this one
    Up(up::Args),
}

/// Programs that `cluster up` starts for roles that this one does not have.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Program with the command `server`; this program if it is `None`.
    pub server: Option<PathBuf>,
    /// Program with the command `worker`, if there is one.
    pub worker: Option<PathBuf>,
    /// Threads of each worker; by default the workers share the processors.
    pub threads: Option<u16>,
}

#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// The cluster's registry: `parapet://HOST:PORT`, or `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`
    #[arg(long, value_name = "ADDRESS")]
    pub registry: Address,
}

impl Command {
    pub fn run(&self, programs: &Programs) -> Result<()> {
        // Not one for each processor: one task decides, and where workers compute beside it, each
        // thread that is woken takes one of them off its processor.
        let threads = processors().div_ceil(2);
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).enable_all().build();
        let runtime = runtime.map_err(ClusterError::Runtime)?;
        let outcome = runtime.block_on(async {
            let stop = Stop::listen()?;
            match self {
                Self::Server(args) => server::run(args, stop).await,
                Self::Coordinator(args) => server::coordinate(args, stop).await,
                Self::Cluster(ClusterCommand::Up(args)) => up::run(args, programs, stop).await,
                Self::Top(args) => top::run(args, stop).await,
            }
        });
        // A thread may still wait for the standard input.
        runtime.shutdown_background();
        outcome
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Ctrl-C and SIGTERM ask for an end; a second one ends at once, with exit code 130.
struct Stop(Signal, Signal);

impl Stop {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(ClusterError::Runtime);
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self(interrupt, listen(SignalKind::terminate())?))
    }

    async fn asked(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// Waits until the parent process has closed the standard input, if `attached`.
async fn abandoned(attached: bool) {
    if !attached {
        return std::future::pending().await;
    }
    let mut input = tokio::io::stdin();
    let mut byte = [0; 1];
    while !matches!(input.read(&mut byte).await, Ok(0) | Err(_)) {}
}
