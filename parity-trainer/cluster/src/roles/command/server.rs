//! `server`.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::node::Timing;
use crate::node::transport::Sockets;
use parapet_parameter_server::{CoordinatorConfig, Placement};
use tokio_util::task::AbortOnDropHandle;

use super::stop::{Stop, abandoned};
use super::{CommandError, RegistryArgs};
use crate::roles::{ServerRole, ServerSettings};

/// Arguments of `server`.
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
    /// Its part of the load, relative to the others'
    #[arg(long, default_value_t = 1)]
    weight: u32,
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

/// Settings of the leader's decisions; the same on all that may lead.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct LeadingArgs {
    /// Servers that hold each range
    #[arg(long, default_value = "2")]
    replicas: NonZeroUsize,
    /// Arrays are given to servers when there are this many
    #[arg(long, value_name = "SERVERS", default_value = "1")]
    min_servers: NonZeroUsize,
    /// Milliseconds between signs of life; the same on all nodes
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    heartbeat: u64,
}

impl LeadingArgs {
    pub(super) const fn new(replicas: NonZeroUsize, min_servers: NonZeroUsize) -> Self {
        Self {
            replicas,
            min_servers,
            heartbeat: 100,
        }
    }

    fn timing(self) -> Timing {
        Timing {
            heartbeat: Duration::from_millis(self.heartbeat),
        }
    }

    pub(super) fn config(self) -> CoordinatorConfig {
        let placement = Placement {
            replicas: self.replicas.get(),
            ..Placement::default()
        };
        let min_servers = self.min_servers.get();
        CoordinatorConfig {
            placement,
            min_servers,
            ..CoordinatorConfig::of_heartbeat(self.timing().heartbeat)
        }
    }
}

pub(super) async fn run(args: &Args) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let address = &args.registry.registry;
    let registry = address.open().await?;
    let host = args
        .listen
        .rsplit_once(':')
        .map_or("127.0.0.1", |(host, _)| host);
    let settings = ServerSettings {
        listen: args.listen.clone(),
        advertise: args.advertise.clone(),
        control: Some(format!("{host}:0")),
        metrics: args.metrics.clone(),
        weight: args.weight,
        timing: args.leading.timing(),
        leads: Some(args.leading.config()),
        leave: Duration::from_secs(args.leave_within),
        ..ServerSettings::new(address.cluster())
    };
    let server = ServerRole::join(&registry, settings, Sockets).await?;
    eprintln!("{}: takes connections at {}", server.id(), server.address());
    if let Some(address) = server.metrics_address() {
        eprintln!("{}: metrics at http://{address}/metrics", server.id());
    }
    let id = server.id();
    let asked = async move {
        stop.asked().await;
        eprintln!("{id}: leaves as soon as others hold its ranges; once more to end at once");
    };
    // As a task: the thread that runs the runtime from outside has to be woken through the kernel
    // for each message.
    let mut serving = AbortOnDropHandle::new(tokio::spawn(server.run(asked)));
    tokio::select! {
        ended = &mut serving => match ended {
            Ok(ended) => Ok(ended?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Ok(()),
            },
        },
        () = abandoned(args.attached) => Ok(()),
    }
}
