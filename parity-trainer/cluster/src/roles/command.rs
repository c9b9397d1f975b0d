//! The commands of processes: `server`, `coordinator`, `cluster` and `top`. Arguments in, a
//! process's life out.

mod coordinator;
mod server;
mod stop;
mod top;
mod up;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use crate::registry::{Address, RegistryError};
use tokio::runtime::Builder;

use crate::roles::ClusterError;
pub use stop::Stop;

/// Commands of the cluster.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Hold parameters: a parameter server
    Server(server::Args),
    /// Lead a cluster, and serve its registry if there is no etcd
    Coordinator(coordinator::Args),
    /// Run a whole cluster on this machine
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show nodes, ranges, staleness and bytes of a cluster
    Top(top::Args),
}

/// Commands on a whole cluster.
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

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
pub enum CommandError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the process cannot be set up ({0}): raise its limits")]
    Runtime(std::io::Error),
    #[error("{program} cannot be started ({source}): check that it is there and may be run")]
    Spawn {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "this program has no workers: start them by `parity-trainer cluster up`, or leave \
            --workers out"
    )]
    NoWorkers,
    #[error(
        "all servers have ended: start the cluster again; a run with --resume goes on from its \
            checkpoint"
    )]
    NoServers,
}

impl From<RegistryError> for CommandError {
    fn from(error: RegistryError) -> Self {
        Self::Cluster(error.into())
    }
}

impl Command {
    /// Does it, until it is done or a signal ends it.
    ///
    /// # Errors
    /// In one line.
    pub fn run(&self, programs: &Programs) -> Result<(), CommandError> {
        // Not one for each processor: one task decides, and where workers compute beside it, each
        // thread that is woken takes one of them off its processor.
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = processors.div_ceil(2);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build();
        let runtime = runtime.map_err(CommandError::Runtime)?;
        let outcome = runtime.block_on(async {
            match self {
                Self::Server(args) => server::run(args).await,
                Self::Coordinator(args) => coordinator::run(args).await,
                Self::Cluster(ClusterCommand::Up(args)) => up::run(args, programs).await,
                Self::Top(args) => top::run(args).await,
            }
        });
        // A thread may still wait for the standard input.
        runtime.shutdown_background();
        outcome
    }
}

#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// The cluster's registry: `parapet://HOST:PORT`, or `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`
    #[arg(long, value_name = "ADDRESS")]
    pub registry: Address,
}
