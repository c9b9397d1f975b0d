//! `coordinator`.

use std::sync::Arc;

use crate::registry::{Address, MemoryStore, Registry, serve_store};
use tokio_util::task::AbortOnDropHandle;

use super::CommandError;
use super::server::LeadingArgs;
use super::stop::Stop;
use crate::roles::coordinate;
use crate::roles::listening::Listening;

/// Arguments of `coordinator`.
#[derive(Debug, clap::Args)]
pub struct Args {
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

/// A registry in this process, served to others until it is dropped.
#[derive(Debug)]
pub(super) struct ServedRegistry {
    pub(super) registry: Registry,
    /// As others name it.
    pub(super) address: String,
    _serving: AbortOnDropHandle<()>,
}

impl ServedRegistry {
    pub(super) async fn start(listen: &str) -> Result<Self, CommandError> {
        let Listening { listener, address } = Listening::at(listen).await?;
        let address = format!("parapet://{address}");
        let store = Arc::new(MemoryStore::default());
        let registry = Registry::open(store.clone()).await?;
        let serving = AbortOnDropHandle::new(tokio::spawn(async move {
            serve_store(store, listener, std::future::pending()).await;
        }));
        Ok(Self {
            registry,
            address,
            _serving: serving,
        })
    }
}

pub(super) async fn run(args: &Args) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let mut served = None;
    let registry = match (&args.registry, &args.serve) {
        (Some(address), _) => address.open().await?,
        (None, serve) => {
            let served =
                served.insert(ServedRegistry::start(serve.as_deref().unwrap_or_default()).await?);
            eprintln!("coordinator: serves the registry at {}", served.address);
            served.registry.clone()
        }
    };
    Ok(coordinate(&registry, args.leading.config(), stop.asked()).await?)
}
