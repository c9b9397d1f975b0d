//! The commands of processes: `server`, `coordinator`, `cluster` and `top`. Arguments in, a
//! process's life out.

mod top;
mod up;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::CoordinatorConfig;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use crate::node::{NodeConfig, Timing, Transport};
use crate::registry::{Address, MemoryStore, Registry, serve_store};
use crate::roles::server::listen;
use crate::roles::{ClusterError, Result, ServerRole, ServerSettings};

/// Time that a cluster's processes have for their own end.
const LAST: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Hold parameters: a parameter server
    Server(ServerArgs),
    /// Lead a cluster, and serve its registry if there is no etcd
    Coordinator(CoordinatorArgs),
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
                Self::Server(args) => run_server(args, stop).await,
                Self::Coordinator(args) => coordinate(args, stop).await,
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

/// Waits until the parent process has closed the standard input.
async fn abandoned() {
    let mut input = tokio::io::stdin();
    let mut byte = [0; 1];
    while !matches!(input.read(&mut byte).await, Ok(0) | Err(_)) {}
}

#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    registry: RegistryArgs,
    /// Where it takes connections; port 0 for any that is free
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// The host under which others reach it [default: that of --listen]
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    #[command(flatten)]
    leading: LeadingArgs,
    /// Answer scrapes of Prometheus at /metrics there
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Hold nothing until load distribution needs this server, or too few others are there
    #[arg(long)]
    standby: bool,
    /// Seconds that others have to take its shards when it leaves
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    leave_within: u64,
    /// End when the standard input does
    #[arg(long, hide = true)]
    attached: bool,
}

#[derive(Debug, clap::Args)]
pub struct CoordinatorArgs {
    /// The cluster's registry in etcd: `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`
    #[arg(
        long,
        value_name = "ADDRESS",
        required_unless_present = "serve",
        conflicts_with = "serve"
    )]
    registry: Option<Address>,
    /// Serve the registry from this process's memory: others name it `parapet://HOST:PORT`
    #[arg(long, value_name = "HOST:PORT")]
    serve: Option<String>,
    #[command(flatten)]
    leading: LeadingArgs,
}

/// Settings of the leader's decisions; the same on all that may lead.
#[derive(Debug, Clone, Copy, clap::Args)]
struct LeadingArgs {
    /// Servers that hold each range
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Arrays are given to servers when there are this many
    #[arg(long, value_name = "SERVERS", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    min_servers: u16,
    /// Seconds between moves of ranges away from slow servers, at least; 0 for no such moves
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    rebalance: u64,
    /// Milliseconds between signs of life; the same on all nodes
    #[arg(long, value_name = "MS", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    heartbeat: u64,
}

impl LeadingArgs {
    const fn heartbeat(self) -> Duration {
        Duration::from_millis(self.heartbeat)
    }

    fn config(self) -> CoordinatorConfig {
        let mut config = CoordinatorConfig::of_heartbeat(self.heartbeat());
        config.placement.replicas = self.replicas.into();
        config.min_servers = self.min_servers.into();
        config.replan = (self.rebalance > 0).then(|| Duration::from_secs(self.rebalance));
        config
    }
}

/// A registry that this process serves to others as long as this is held.
struct Serving {
    registry: Registry,
    address: Address,
    _task: AbortOnDropHandle<()>,
}

impl Serving {
    async fn start(listen_at: &str) -> Result<Self> {
        let (listener, endpoint) = listen(listen_at).await?;
        let store = Arc::new(MemoryStore::default());
        let registry = Registry::open(store.clone()).await?;
        let serving = tokio::spawn(serve_store(store, listener, std::future::pending()));
        Ok(Self {
            registry,
            address: Address::Served(endpoint),
            _task: AbortOnDropHandle::new(serving),
        })
    }
}

async fn coordinate(args: &CoordinatorArgs, stop: Stop) -> Result<()> {
    let config = args.leading.config();
    if let Some(address) = &args.registry {
        let registry = address.open().await?;
        return crate::roles::coordinate(&registry, config, stop.asked()).await;
    }
    let serving = Serving::start(args.serve.as_deref().unwrap_or_default()).await?;
    eprintln!("coordinator: serves the registry at {}", serving.address);
    crate::roles::coordinate(&serving.registry, config, stop.asked()).await
}

async fn run_server(args: &ServerArgs, stop: Stop) -> Result<()> {
    let address = &args.registry.registry;
    let registry = address.open().await?;
    let heartbeat = args.leading.heartbeat();
    let config = NodeConfig {
        timing: Timing { heartbeat },
        ..NodeConfig::new(address.cluster(), Transport::Sockets)
    };
    let settings = ServerSettings {
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        metrics: args.metrics.clone(),
        leads: args.leading.config(),
        standby: args.standby,
        leave: Duration::from_secs(args.leave_within),
        ..ServerSettings::new(config)
    };
    let server = ServerRole::join(&registry, settings).await?;
    let id = server.id();
    eprintln!("{id}: takes connections at {}", server.address());
    if let Some(address) = &server.metrics_address {
        eprintln!("{id}: metrics at http://{address}/metrics");
    }
    let asked = async move {
        stop.asked().await;
        eprintln!("{id}: leaves as soon as others hold its ranges; once more to end at once");
    };
    // As a task: the thread that runs the runtime from outside has to be woken through the kernel
    // for each message.
    let mut serving = AbortOnDropHandle::new(tokio::spawn(server.run(asked)));
    tokio::select! {
        ended = &mut serving => match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(()),
            },
        },
        () = abandoned(), if args.attached => Ok(()),
    }
}
