//! `server` and `coordinator`.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::CoordinatorConfig;
use tokio_util::task::AbortOnDropHandle;

use super::{RegistryArgs, Stop, abandoned};
use crate::node::{NodeConfig, Timing, Transport};
use crate::registry::{Address, MemoryStore, Registry, serve_store};
use crate::roles::server::listen;
use crate::roles::{Result, ServerRole, ServerSettings};

#[derive(Debug, clap::Args)]
pub struct Args {
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
pub(super) struct LeadingArgs {
    /// Servers that hold each range
    #[arg(long, default_value = "2")]
    pub(super) replicas: NonZeroUsize,
    /// Arrays are given to servers when there are this many
    #[arg(long, value_name = "SERVERS", default_value = "1")]
    pub(super) min_servers: NonZeroUsize,
    /// Milliseconds between signs of life; the same on all nodes
    #[arg(long, value_name = "MS", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(super) heartbeat: u64,
}

impl LeadingArgs {
    const fn heartbeat(self) -> Duration {
        Duration::from_millis(self.heartbeat)
    }

    pub(super) fn config(self) -> CoordinatorConfig {
        let mut config = CoordinatorConfig::of_heartbeat(self.heartbeat());
        config.placement.replicas = self.replicas.get();
        config.min_servers = self.min_servers.get();
        config
    }
}

/// A registry that this process serves to others as long as this is held.
pub(super) struct Serving {
    pub(super) registry: Registry,
    pub(super) address: Address,
    _task: AbortOnDropHandle<()>,
}

impl Serving {
    pub(super) async fn start(listen_at: &str) -> Result<Self> {
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

pub(super) async fn coordinate(args: &CoordinatorArgs, stop: Stop) -> Result<()> {
    let config = args.leading.config();
    if let Some(address) = &args.registry {
        let registry = address.open().await?;
        return crate::roles::coordinate(&registry, config, stop.asked()).await;
    }
    let serving = Serving::start(args.serve.as_deref().unwrap_or_default()).await?;
    eprintln!("coordinator: serves the registry at {}", serving.address);
    crate::roles::coordinate(&serving.registry, config, stop.asked()).await
}

pub(super) async fn run(args: &Args, stop: Stop) -> Result<()> {
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
        () = abandoned(args.attached) => Ok(()),
    }
}
