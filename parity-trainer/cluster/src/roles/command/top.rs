//! `top`.

mod table;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use crate::registry::View;
use parapet_parameter_server::NodeId;
use tokio::time::timeout;

use super::stop::Stop;
use super::{CommandError, RegistryArgs};
use crate::roles::control::{Control, Status};

/// Time that a server may take to answer: the user wants to see the others now.
const PATIENCE: Duration = Duration::from_secs(1);

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    registry: RegistryArgs,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
    /// Look once
    #[arg(long)]
    once: bool,
}

pub(super) async fn run(args: &Args) -> Result<(), CommandError> {
    let stop = Stop::listen()?;
    let address = &args.registry.registry;
    let registry = address.open().await?;
    let mut every = tokio::time::interval(Duration::from_secs_f64(args.every.clamp(0.1, 3600.0)));
    let screen = std::io::stdout().is_terminal() && !args.once;
    let mut controls = BTreeMap::new();
    let asked = stop.asked();
    tokio::pin!(asked);
    loop {
        tokio::select! {
            () = &mut asked => return Ok(()),
            _ = every.tick() => {}
        }
        let view = Arc::clone(&registry.view().borrow());
        let statuses = ask(&view, &mut controls).await;
        let text = table::render(&address.to_string(), &view, &statuses);
        let clear = if screen { "\x1b[H\x1b[2J" } else { "" };
        let mut out = std::io::stdout().lock();
        let written = write!(out, "{clear}{text}").and_then(|()| out.flush());
        // The reader has seen enough.
        if args.once || written.is_err() {
            return Ok(());
        }
    }
}

/// Asks the servers for their status; those that do not answer are left out.
async fn ask(
    view: &View,
    controls: &mut BTreeMap<NodeId, (String, Control)>,
) -> BTreeMap<NodeId, Status> {
    controls.retain(|node, (address, _)| {
        view.servers
            .get(node)
            .is_some_and(|server| server.control == *address)
    });
    for (&node, server) in view
        .servers
        .iter()
        .filter(|(_, server)| !server.control.is_empty())
    {
        if let Ok(control) = Control::new(node, &server.control) {
            controls
                .entry(node)
                .or_insert_with(|| (server.control.clone(), control));
        }
    }
    let mut asked = tokio::task::JoinSet::new();
    for (&node, (_, control)) in &*controls {
        let control = control.clone();
        asked.spawn(async move { (node, timeout(PATIENCE, control.status()).await) });
    }
    let mut statuses = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok((node, Ok(Ok(status)))) = answer {
            statuses.insert(node, status);
        }
    }
    statuses
}
